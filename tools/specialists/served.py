"""The models of this process, one server for each, and the base of the tools that ask them."""

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from ...errors import ConfigError, ToolError, ToolFault
from ...images.view import View
from ...utils import concurrency
from .calls import Request
from .serving import ModelServer, Runner, ServingSettings

_servers: dict[Hashable, ModelServer] = {}
_servers_lock = Lock()
os.register_at_fork(after_in_child=_servers.clear)  # a child process has none of their threads


def get_server(key: Hashable, load: Callable[[], Runner], settings: ServingSettings) -> ModelServer:
    """The server of a model; a new one if no specialist has named this model yet.

    Args:
        key: everything that decides how the model is loaded.
        load: loads it.
        settings: how calls are collected; of several specialists that share a model, the smaller value of each holds.
    """
    with _servers_lock:
        server = _servers.get(key)
        if server is None:
            server = _servers[key] = ModelServer(load, settings)
        else:
            server.apply(settings)
    return server


def forget_servers() -> None:
    """Forget every model, so that a specialist that is made from now on loads its own. For tests."""
    with _servers_lock:
        _servers.clear()


@dataclass(frozen=True)
class ServedTool:
    """The base of a tool's function that asks a `ModelServer`.

    Args:
        name: of the tool, which begins the messages of its errors.
        server: of the model.
    """

    name: str
    server: ModelServer

    def prepare(self) -> None:
        """Load the model. Raises `ConfigError`; its key begins with `specialists.NAME`."""
        try:
            self.server.prepare()
        except ConfigError as error:
            path = f"specialists.{self.name}"
            key = f"{path}.{error.key}" if error.key else path
            raise ConfigError(f"{path}.{error}", key=key, given=error.given, allowed=error.allowed) from error

    def rest(self) -> None:
        """Free the device until the next call, if the specialist says `offload`."""
        self.server.rest()

    async def ask(self, view: View, arguments: Hashable = ()) -> Any:
        """The model's result for a picture as it is shown. Raises `ToolError` or `ToolFault`."""
        picture = await concurrency.run_in_thread(view.to_ref)
        try:
            return await self.server.ask(Request(picture, arguments))
        except (ToolError, ToolFault) as error:
            text = str(error)
            joint = ": " if text[:1].isupper() else " "
            raise type(error)(f"{self.name}{joint}{text}") from error
