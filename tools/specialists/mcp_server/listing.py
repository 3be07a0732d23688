"""What an MCP server offers: listed for a config, and compared with one."""

import importlib.util
import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

from ....errors import ConfigError, describe_unknown
from ....network import background
from ..schemas import MAX_DESCRIPTION, Parameters, clean_note, read_parameters
from .server import get_server
from .session import ServerSettings, StartError


class OfferedTool(NamedTuple):
    """A tool of a server: its description, cleaned, and the JSON Schema of its arguments as the server sent it."""

    description: str
    schema: dict[str, Any]


def list_offered(settings: ServerSettings, key: str) -> dict[str, OfferedTool]:
    """The tools of a server, which is started or asked, by name.

    Args:
        settings: of the server.
        key: where it stands in a config.

    Raises:
        ConfigError: the package or the program is missing, or the server cannot be used.
    """
    if importlib.util.find_spec("mcp") is None:
        raise ConfigError(f"{key}: needs the package mcp; install it with pip install 'viewbox[mcp]'", key=key)
    if settings.command and shutil.which(settings.command[0]) is None:
        key = f"{key}.command"
        raise ConfigError(f"{key}: there is no program {settings.command[0]!r}", key=key, given=settings.command)
    try:
        tools = background.run(_list_tools(settings))
    except StartError as error:
        raise ConfigError(f"{key}: the MCP server {settings.name}: {error}", key=key) from error
    return {tool.name: OfferedTool(clean_note(tool.description, MAX_DESCRIPTION), tool.input_schema) for tool in tools}


async def _list_tools(settings: ServerSettings) -> list[Any]:
    return list(await get_server(settings).list_tools())


def record_tools(settings: ServerSettings, pictures: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """The tools of a server as `tools` of a config: cleaned, cut and bounded.

    Args:
        settings: of the server.
        pictures: names of arguments that are pictures, of every tool.

    Raises:
        ConfigError: the server cannot be used, or one of its schemas is refused.
    """
    return {name: _record(name, tool, pictures) for name, tool in list_offered(settings, "mcp").items()}


def find_difference(key: str, tool: str, ours: Parameters, offered: dict[str, OfferedTool]) -> str | None:
    """Why the server could not answer the calls that a config allows; None if it could.

    Args:
        key: of the tool in the config.
        tool: its name at the server.
        ours: its parameters in the config.
        offered: what the server offers.
    """
    if tool not in offered:
        return describe_unknown("tool of the server", tool, offered)
    theirs = read_parameters(offered[tool].schema, f"{key}: of the server")
    unknown = [name for name in ours.properties if name not in theirs.properties]
    if unknown and theirs.properties:
        return describe_unknown("argument at the server", unknown[0], theirs.properties)
    missing = [name for name in theirs.required if name not in ours.required]
    return f"the server needs the argument {missing[0]!r}, which is not required here" if missing else None


def _record(name: str, tool: OfferedTool, pictures: Sequence[str]) -> dict[str, Any]:
    parameters = read_parameters(tool.schema, f"tools.{name}.parameters")
    properties = {key: dict(value) for key, value in parameters.properties.items()}
    for key in properties.keys() & set(pictures):
        note = properties[key].get("description")
        properties[key] = {"x-kind": "picture"} | ({"description": note} if note else {})
    schema: dict[str, Any] = {"properties": properties, "required": list(parameters.required)}
    return {"description": tool.description, "parameters": schema}
