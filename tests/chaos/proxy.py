"""A proxy in front of a worker, which delays or breaks connections to it.

Other workers and the scheduler know the worker by the proxy's address. The worker's own connection
to the scheduler does not go through the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

HOST = "127.0.0.1"
CHUNK = 2**16


class Proxy:
    """Forwards connections to one worker; use it on one event loop.

    Its `delay` is in seconds, for each chunk in either direction.
    """

    def __init__(self) -> None:
        self.port = 0
        self.delay = 0.0
        self._refuses = False
        self._target: asyncio.Future[int] | None = None
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> int:
        """Listen; connections wait until :meth:`forward_to` sets the worker's port."""
        self._target = asyncio.get_running_loop().create_future()
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    def forward_to(self, port: int) -> None:
        assert self._target is not None, "opened first"
        self._target.set_result(port)

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        self._refuses = True
        self._break()

    def mend(self) -> None:
        """Accept connections again, and forward without delay."""
        self._refuses = False
        self.delay = 0.0

    async def close(self) -> None:
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
        assert task is not None
        self._tasks.add(task)
        # A worker that is gone, or a closed proxy: the connected peer notices.
        with contextlib.suppress(OSError, asyncio.CancelledError), self._tracked(writer):
            if not self._refuses:
                await self._forward(reader, writer)
        self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward in both directions until one side closes."""
        assert self._target is not None
        far_reader, far_writer = await asyncio.open_connection(HOST, await self._target)
        with self._tracked(far_writer):
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

    @contextlib.contextmanager
    def _tracked(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """Remember an open connection, to break it; abort it at the end."""
        self._writers.add(writer)
        try:
            yield
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
