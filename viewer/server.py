"""Serves the page of runs on this machine, for runs that are large or still being written.

Only 127.0.0.1 is listened on. Every address begins with a random key, so that other users of the machine and other
pages in the browser cannot read the episodes. Nothing is ever written.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

from ..errors import ConfigError, ImageError
from .page import build_data, build_end, build_head, build_policy
from .pictures import encode_picture, list_pictures
from .sources import EpisodeSet, compare_sets

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Mount, Route
except ModuleNotFoundError as error:
    raise ConfigError(f"`viewbox view --serve` needs the package {error.name}: pip install 'viewbox[view]'") from error

HOST = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Viewer:
    """The answers of the server: the page, rows, an episode, a picture, a comparison. All are read-only."""

    def __init__(self, sets: Sequence[EpisodeSet]) -> None:
        self.sets = sets
        self._reading = asyncio.Lock()  # an index is read by one request at a time

    def build_app(self, key: str) -> Starlette:
        """Return the application; every address begins with `/<key>/`."""
        routes = [
            Route("/", self.get_page),
            Route("/sets", self.get_sets),
            Route("/rows/{number:int}", self.get_rows),
            Route("/select/{number:int}", self.get_selection),
            Route("/episode/{number:int}/{line:int}", self.get_episode),
            Route("/image/{number:int}/{line:int}/{name:str}.png", self.get_image),
            Route("/compare/{a:int}/{b:int}", self.get_comparison),
        ]
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])  # against names that point here
        return Starlette(
            routes=[Mount(f"/{key}", routes=routes)],
            middleware=[hosts],
            exception_handlers={ValueError: lambda request, error: _refuse("no such number")},
        )

    async def get_page(self, request: Request) -> Response:
        text = build_head(served=True) + build_data("served", True) + build_end()
        return HTMLResponse(text, headers={**HEADERS, "Content-Security-Policy": build_policy(served=True)})

    async def get_sets(self, request: Request) -> Response:
        return _to_json([await asyncio.to_thread(episode_set.describe) for episode_set in self.sets])

    async def get_rows(self, request: Request) -> Response:
        """Return the rows from number `start` on, after a look for new ones."""
        episode_set = self._find(request.path_params["number"])
        start = request.query_params.get("start", "0")
        if episode_set is None or not start.isdecimal() or len(start) > 12:
            return _refuse("no such rows")
        async with self._reading:
            await asyncio.to_thread(episode_set.index.refresh)
            return _to_json(episode_set.index.to_dict(int(start)))

    async def get_selection(self, request: Request) -> Response:
        """Return the lines of the episodes that meet the filters."""
        episode_set = self._find(request.path_params["number"])
        if episode_set is None:
            return _refuse("no such rows")
        try:
            return _to_json(await asyncio.to_thread(episode_set.index.select, request.query_params.getlist("where")))
        except ConfigError as error:
            return _refuse(str(error))

    async def get_episode(self, request: Request) -> Response:
        one = self._find(request.path_params["number"])
        page = None if one is None else await asyncio.to_thread(one.build_page, request.path_params["line"])
        return _refuse("no such episode") if page is None else _to_json(page)

    async def get_image(self, request: Request) -> Response:
        one, name = self._find(request.path_params["number"]), request.path_params["name"]
        episode = None if one is None else await asyncio.to_thread(one.index.read, request.path_params["line"])
        ref = None if episode is None else list_pictures(episode).get(name)
        if ref is None:
            return _refuse("no such picture")
        try:
            return Response(await asyncio.to_thread(encode_picture, ref), media_type="image/png", headers=HEADERS)
        except ImageError as error:
            return _refuse(str(error))

    async def get_comparison(self, request: Request) -> Response:
        a, b = self._find(request.path_params["a"]), self._find(request.path_params["b"])
        if a is None or b is None:
            return _refuse("no such set of episodes")
        return _to_json(await asyncio.to_thread(compare_sets, a, b))

    def _find(self, number: int) -> EpisodeSet | None:
        return self.sets[number] if number < len(self.sets) else None


def open_socket(port: int) -> socket.socket:
    """Return a socket of this machine; `port` 0 takes a free one. Raise `ConfigError` if the port is taken."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((HOST, port))
        opened.listen()  # who opens the address at once waits for the server
    except OSError as error:
        opened.close()
        raise ConfigError(f"--port {port}: {error.strerror}; allowed: another port, or none") from error
    return opened


def serve(sets: Sequence[EpisodeSet], opened: socket.socket, key: str) -> None:
    """Serve until the process is interrupted."""
    app = Viewer(sets).build_app(key)
    settings = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
    uvicorn.Server(settings).run(sockets=[opened])


def _to_json(value: Any) -> Response:
    try:
        return JSONResponse(value, headers=HEADERS)
    except ValueError as error:  # a number that is not finite
        return _refuse(str(error))


def _refuse(reason: str) -> Response:
    return JSONResponse({"error": reason}, status_code=404, headers=HEADERS)
