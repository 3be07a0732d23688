"""The common part of the hubs in tests: a server on 127.0.0.1 that records what it is sent, and fails if told to.

A hub is a class with routes: `@route("POST", r"/api/repos/create")` on a method that takes the request's body and the
groups of the pattern, and returns JSON, bytes, or what `say` returns.
"""

import re
import threading
from contextlib import contextmanager

from tests.support.servers import Handler, Server, make_response, run_server, send_bytes
from tests.support.servers import hang_up as cut

__all__ = ["HubServer", "cut", "route", "say", "serve_hub"]  # `cut` is a fault: no answer


def route(method, pattern):
    def mark(function):
        function.route = (method, re.compile(pattern + r"(?:\?.*)?"))
        return function

    return mark


def say(code, value=None, **headers):
    """An answer with this status, JSON or bytes, and headers."""
    make = send_bytes if isinstance(value, bytes) else make_response
    return make(code, value, Content_Type="application/json", **headers)


class HubServer:
    """`requests` holds (method, path, headers, body); `faults` (pattern of "METHOD path", fault), each used once."""

    def __init__(self):
        self.requests, self.faults, self.lock, self.url = [], [], threading.RLock(), ""

    def find(self, pattern):
        """The requests whose "METHOD path" matches."""
        return [one for one in self.requests if re.search(pattern, f"{one[0]} {one[1]}")]

    def answer(self, handler):
        with self.lock:
            self.requests.append((handler.command, handler.path, dict(handler.headers), handler.content))
            for fault in self.faults:
                if re.search(fault[0], f"{handler.command} {handler.path}"):
                    self.faults.remove(fault)
                    break
            else:
                fault = (None, self.find_answer(handler))
        fault[1](handler)

    def find_answer(self, handler):
        for name in dir(self):
            method, pattern = getattr(getattr(self, name), "route", (None, None))
            found = pattern and pattern.fullmatch(handler.path)
            if found and method in (handler.command, "GET" if handler.command == "HEAD" else None):
                result = getattr(self, name)(handler.content, **found.groupdict())
                return result if callable(result) else say(200, result)
        return say(404, {"error": f"no such page {handler.path}", "detail": "Not found"})


class HubHandler(Handler):
    do_HEAD = Handler.do_GET


@contextmanager
def serve_hub(hub):
    with run_server(Server(lambda body, number: hub.answer, handler=HubHandler)) as server:
        hub.url = server.url.removesuffix("/v1")
        yield hub
