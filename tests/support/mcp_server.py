"""A real MCP server by the official library: over stdio (`python tests/support/mcp_server.py`) or over HTTP."""

import base64
import io
import os
import sys
import time
from contextlib import contextmanager

from mcp.server.mcpserver import Image, MCPServer
from PIL import Image as Pillow


def decode(image):
    return Pillow.open(io.BytesIO(base64.b64decode(image)))


def make_server():
    server = MCPServer("hospital")

    @server.tool()
    def measure_heart(image: str, box: list[float] | None = None, part: str = "heart") -> dict:
        """Measures the heart in a chest film."""
        width, height = decode(image).size
        return {"part": part, "size": [width, height], "given": box, "findings": [{"box": [0.25, 0.5, 0.75, 1.0]}]}

    @server.tool()
    def say(text: str) -> str:
        """Repeats a text."""
        return text

    @server.tool()
    def draw(image: str) -> Image:
        """Sends the picture back, inverted."""
        picture = Pillow.eval(decode(image).convert("L"), lambda value: 255 - value)
        buffer = io.BytesIO()
        picture.save(buffer, "PNG")
        return Image(data=buffer.getvalue(), format="png")

    @server.tool()
    def environ() -> dict[str, str]:
        """The variables that the server sees."""
        return {"names": " ".join(sorted(os.environ)), "process": str(os.getpid())}

    @server.tool()
    def fail(how: str) -> str:
        """Fails."""
        if how == "raise":
            raise ValueError("the film is upside down")
        if how == "no reply":
            time.sleep(600)
        if how == "100 MB":
            return "x" * 100 * 2**20
        if how == "forget a tool":
            server.remove_tool("say")
        return how

    return server


@contextmanager
def serve_mcp():
    """The address of the server over HTTP, in a thread."""
    from tests.support.servers import serve_app

    with serve_app(make_server().streamable_http_app()) as url:
        yield f"{url}/mcp"


if __name__ == "__main__":
    if len(sys.argv) > 1:  # a file to which the process writes its id
        with open(sys.argv[1], "a") as file:
            file.write(f"{os.getpid()}\n")
    make_server().run()
