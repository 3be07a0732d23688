"""The common part of the hubs in tests: a server on 127.0.0.1 that records what it is sent, and fails if told to.

A hub is a class with routes: `@route("POST", r"/api/repos/create")` on a method that takes the request's body and the
groups of the pattern, and returns JSON, bytes, or a status.
"""

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def route(method, pattern):
    def mark(function):
        function.route = (method, re.compile(pattern + r"(?:\?.*)?"))
        return function

    return mark


class Status:
    """An answer with a status, JSON and headers."""

    def __init__(self, code, value=None, **headers):
        self.code, self.value, self.headers = code, value, {k.replace("_", "-"): v for k, v in headers.items()}


def cut(handler):
    """A fault: the connection ends without an answer."""
    handler.close_connection = True


def say(code, value=None, **headers):
    """A fault: an answer with this status."""
    return lambda handler: handler.answer(Status(code, value, **headers))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one(self):
        hub, length = self.server.hub, int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        with hub.lock:
            hub.requests.append((self.command, self.path, dict(self.headers), body))
            fault = next((one for one in hub.faults if re.search(one[0], f"{self.command} {self.path}")), None)
            if fault is not None:
                hub.faults.remove(fault)
        if fault is not None:
            return fault[1](self)
        for name in dir(hub):
            method, pattern = getattr(getattr(hub, name), "route", (None, None))
            found = pattern and pattern.fullmatch(self.path)
            if found and method in (self.command, "GET" if self.command == "HEAD" else None):
                with hub.lock:
                    result = getattr(hub, name)(body, **found.groupdict())
                return self.answer(result if isinstance(result, Status) else Status(200, result))
        return self.answer(Status(404, {"error": f"no such page {self.path}", "detail": "Not found"}))

    def answer(self, status):
        content = status.value if isinstance(status.value, bytes) else json.dumps(status.value).encode()
        self.send_response(status.code)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": len(content),
            **status.headers,
        }.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = handle_one

    def log_message(self, *_): ...


class HubServer:
    """`requests` holds (method, path, headers, body); `faults` (pattern of "METHOD path", fault), each used once."""

    def __init__(self):
        self.requests, self.faults, self.lock, self.url = [], [], threading.RLock(), ""

    def find(self, pattern):
        """The requests whose "METHOD path" matches."""
        return [one for one in self.requests if re.search(pattern, f"{one[0]} {one[1]}")]


@contextmanager
def serve_hub(hub):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.hub, server.daemon_threads = hub, True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
