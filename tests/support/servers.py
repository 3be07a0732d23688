"""Real HTTP servers on this machine for tests of clients. Their responses are scripted, broken ones included."""

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def make_completion(content="", *calls, finish="stop", usage=None, **more):
    """A chat completion: text, and (id, name, arguments) of native tool calls."""
    message = {"role": "assistant", "content": content, **more}
    if calls:
        message["tool_calls"] = [
            {"type": "function", **({"id": id_} if id_ else {}), "function": {"name": name, "arguments": arguments}}
            for id_, name, arguments in calls
        ]
        finish = "tool_calls"
    whole = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    return whole | ({"usage": usage} if usage else {})


def make_response(code, body=None, **headers):
    """A function that sends a response with this status; `Retry_After=1` becomes the header `Retry-After`."""
    content = (json.dumps(body) if isinstance(body, dict | list) else body or "").encode()
    return send_bytes(code, content, **headers)


def send_bytes(code, content, **headers):
    """As `make_response`, for a body that is no text."""

    def send(handler):
        handler.send_response(code)
        for name, value in {"Content-Length": len(content), **headers}.items():
            handler.send_header(name.replace("_", "-"), str(value))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(content)

    return send


def send_body(text, **headers):
    """A 200 with this text, lone surrogates and all, or these bytes."""
    return send_bytes(200, text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"), **headers)


def send_raw(*parts):
    """These bytes in place of a response; then the connection is closed."""

    def send(handler):
        handler.close_connection = True
        for part in parts:
            handler.wfile.write(part)

    return send


def cut_body(handler):
    """Sends half a body, then closes the connection."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def hang_up(handler):
    """Closes the connection without a status line."""
    handler.close_connection = True


def drip_body(handler):
    """Sends a byte now and then, for minutes."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    for _ in range(2000):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def send_hints(handler):
    """Sends informational responses without end."""
    handler.close_connection = True
    while True:
        handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n")
        time.sleep(0.01)


def flood_body(handler, size=50 * 2**20, *, with_length=True):
    """Sends a body of 50 MB; `handler.server.drained` says whether it went out whole.

    How much of it does otherwise is no measure of the client: sockets of Linux hold 10 MB and more of it.
    """
    handler.send_response(200)
    if with_length:
        handler.send_header("Content-Length", str(size))
    else:
        handler.close_connection = True
    handler.end_headers()
    for _ in range(size // 65536):
        handler.wfile.write(b" " * 65536)
    handler.server.drained = True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = None
        with suppress(ValueError):  # an upload is no JSON
            body = json.loads(self.content)
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
            by_path = self.server.by_path.get(self.path)
        answer = by_path(body) if by_path else self.server.answer(body, number)
        try:
            (answer if callable(answer) else make_response(200, answer))(self)
        except OSError:  # the client has gone
            self.close_connection = True

    do_POST = do_PUT = do_CONNECT = do_GET

    def log_message(self, *args): ...


class Server(ThreadingHTTPServer):
    """`requests` holds every request; `answer(body, number)` returns a dict to send, or a function of the handler.

    `by_path` has answers of their own, `answer(body)`, for some paths.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, answer, port=0, by_path=None, handler=Handler):
        super().__init__(("127.0.0.1", port), handler)
        self.by_path = by_path or {}
        self.answer, self.requests, self.lock, self.drained = answer, [], threading.Lock(), False
        self.connections = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def bodies(self):
        return [one["body"] for one in self.requests]

    def get_request(self):
        self.connections.append(super().get_request())
        return self.connections[-1]

    def kill(self):
        """Stops as if its process had been killed."""
        self.shutdown()
        self.server_close()
        for connection, _ in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address): ...


def serve(answer, port=0, by_path=None):
    """Runs a server in a thread."""
    return run_server(Server(answer, port, by_path))


@contextmanager
def run_server(server):
    """Runs it in a thread, until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.kill()
        thread.join(5)


def make_script(*answers):
    """An `answer` that returns these one after the other, and then always the last one."""
    return lambda body, number: answers[min(number, len(answers) - 1)]


@contextmanager
def serve_app(app):
    """The address of an application that uvicorn serves on 127.0.0.1."""
    import uvicorn

    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        thread.join(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
