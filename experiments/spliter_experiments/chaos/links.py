"""A proxy before a worker: what others send to it can be delayed, or cut.

Other workers and the scheduler know the worker by the proxy's address. The worker's own connection
to the scheduler does not go through it.
"""

from __future__ import annotations

import asyncio
import contextlib

HOST = "127.0.0.1"
CHUNK = 2**16


class Link:
    """One worker's proxy; to be used on one event loop.

    Attributes
    ----------
    port : int
        Where it listens; 0 before :meth:`open`.
    delay : float
        Seconds that everything that is sent is held back, in both directions.
    """

    def __init__(self) -> None:
        self.port = 0
        self.delay = 0.0
        self._is_cut = False
        self._target: asyncio.Future[int] | None = None
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> int:
        """Listen; connections wait until :meth:`lead_to` says where to."""
        self._target = asyncio.get_running_loop().create_future()
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    def lead_to(self, port: int) -> None:
        """Say where the worker listens.

        Parameters
        ----------
        port : int
            On this machine.
        """
        assert self._target is not None, "opened first"
        if not self._target.done():
            self._target.set_result(port)

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        self._is_cut = True
        self._break()

    def mend(self) -> None:
        """Let connections be made again, and everything pass at once."""
        self._is_cut = False
        self.delay = 0.0

    async def close(self) -> None:
        """Break all connections and listen no more."""
        if self._server is not None:
            self._server.close()
        self._break()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _break(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None and self._target is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self._is_cut:
                return
            far_reader, far_writer = await asyncio.open_connection(HOST, await self._target)
            self._writers.add(far_writer)
            try:
                await self._pump_both(reader, writer, far_reader, far_writer)
            finally:
                far_writer.transport.abort()
                self._writers.discard(far_writer)
        except (OSError, asyncio.CancelledError):
            return  # the worker is gone, or the link closed: whoever is connected sees it
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _pump_both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        """Pass on what comes from either side until one of them ends."""
        pumps = [
            asyncio.ensure_future(self._pump(reader, far_writer)),
            asyncio.ensure_future(self._pump(far_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
