"""Real HTTP servers on this machine, for tests of clients: one that says what a script says, also broken things."""

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def says(content="", *calls, finish="stop", usage=None, **more):
    """A chat completion: text, and (id, name, arguments) of native tool calls."""
    message = {"role": "assistant", "content": content, **more}
    if calls:
        function = [{"name": name, "arguments": arguments} for _, name, arguments in calls]
        ids = [{"type": "function", **({"id": one[0]} if one[0] else {})} for one in calls]
        message["tool_calls"] = [{**id_, "function": one} for id_, one in zip(ids, function, strict=True)]
        finish = "tool_calls"
    whole = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    return whole | ({"usage": usage} if usage else {})


def status(code, body=None, **headers):
    """A whole response with that status; `Retry_After=1` is a header."""

    def send(handler):
        content = (json.dumps(body) if isinstance(body, dict | list) else body or "").encode()
        handler.send_response(code)
        for name, value in {"Content-Length": len(content), **headers}.items():
            handler.send_header(name.replace("_", "-"), str(value))
        handler.end_headers()
        handler.wfile.write(content)

    return send


def cut(handler):
    """Half a body, then the connection is gone."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def hang_up(handler):
    """Not even a status."""
    handler.close_connection = True


def drip(handler):
    """A byte now and then, for minutes."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    for _ in range(2000):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def flood(handler, size=50 * 2**20):
    """A body of 50 MB; how much of it the client took is in `handler.server.flooded`."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(size))
    handler.end_headers()
    for _ in range(size // 65536):
        handler.wfile.write(b" " * 65536)
        handler.server.flooded += 65536


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.asked)
            self.server.asked.append({"path": self.path, "headers": dict(self.headers), "body": body})
        answer = self.server.answer(body, number)
        try:
            (answer if callable(answer) else status(200, answer))(self)
        except OSError:  # the client has gone
            self.close_connection = True

    def log_message(self, *args): ...


class Server(ThreadingHTTPServer):
    """`asked` holds every request; `answer(body, number)` gives a dict to send, or a function of the handler."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, answer, port=0):
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer, self.asked, self.lock, self.flooded = answer, [], threading.Lock(), 0
        self.connections = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def bodies(self):
        return [one["body"] for one in self.asked]

    def get_request(self):
        self.connections.append(super().get_request())
        return self.connections[-1]

    def die(self):
        """As if its process had been killed."""
        self.shutdown()
        self.server_close()
        for connection, _ in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address): ...


@contextmanager
def serving(answer, port=0):
    """A server that runs in a thread meanwhile."""
    server = Server(answer, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.die()
        thread.join(5)


def scripted(*answers):
    """An `answer` that gives these one after the other, and the last one for ever."""
    return lambda body, number: answers[min(number, len(answers) - 1)]
