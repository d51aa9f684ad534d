"""A service of records: it answers ``POST /records`` of a list of keys with a list of records.

    python -m spliter_experiments.ahead.service FILE

serves the records of a JSON file, and prints its port.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from spliter_experiments.ahead.proxy import HOST, print_port


class Handler(BaseHTTPRequestHandler):
    """Answers a request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    records: ClassVar[dict[str, Any]] = {}

    def do_POST(self) -> None:
        keys = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps([self.records.get(key) for key in keys]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Be silent."""


class Server(ThreadingHTTPServer):
    """Takes many connections at once."""

    daemon_threads = True
    request_queue_size = 100

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Be silent about clients that have gone."""


def main(file: str) -> None:
    """Serve for ever."""
    Handler.records = json.loads(Path(file).read_text(encoding="utf-8"))
    server = Server((HOST, 0), Handler)
    print_port(server.socket)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
