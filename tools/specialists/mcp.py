"""`kind: mcp`: the tools of any MCP server, through the official client (`pip install 'viewbox[mcp]'`).

    specialists:
      hospital:
        kind: mcp
        command: [python, -m, hospital.server]
        tools:                                    # printed by `viewbox tools mcp python -m hospital.server`
          find_nodules:
            description: Finds nodules in a chest film.
            parameters: {properties: {image: {x-kind: picture}}, required: [image]}

What the model reads is in the config, not at the server. So an environment can be made, saved, published and scored
without a server, its prompt is the same in every run, and no server changes it: a person has seen every word of it.
`prepare` compares the config with what the server offers.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, ByteSize, Field, model_validator

from ...configs.sections import Section
from ...errors import ConfigError, ToolError, ToolFault
from ...images.view import View
from ...network import background
from ...network.data_policy import check_sending
from ...network.hosts import check_settings
from ...network.http import parse_body
from ...utils import concurrency
from ...utils.frozen import FrozenDict, freeze
from ..calling import ToolOutput
from ..tool import Tool
from . import remote
from .mcp_server import McpSettings, find_difference, get_server, list_offered
from .remote import Form, Parameters, Returns, Unit
from .spec import Specialist, register_specialist

if TYPE_CHECKING:
    from mcp_types import CallToolResult

MAX_WORDS = 1000  # characters of a server's error
MAX_PARTS = 256  # of a result


class McpToolSpec(Section):
    """One tool of a server, as the model reads it."""

    description: Annotated[str, Field(description="what the model reads about the tool")] = ""
    parameters: Annotated[
        Mapping[str, Any],
        AfterValidator(freeze),
        Field(description="JSON Schema of the arguments; `x-kind` as for the kind http"),
    ] = FrozenDict()
    returns: Annotated[Returns, Field(description="what the fields of a result mean; the others are facts")] = Returns()


@register_specialist("mcp")
class McpSpecialist(McpSettings, Specialist):
    """The tools of an MCP server: a program that is started once a process, or an address."""

    tools: Annotated[
        Mapping[str, McpToolSpec],
        AfterValidator(freeze),
        Field(min_length=1, description="the wanted tools by name, each with description, parameters and returns"),
    ]
    prefix: Annotated[
        str | None, Field(description='before the names of the tools; default: the name of the specialist and "_"')
    ] = None
    unit: Annotated[Unit, Field(description="how the server reads and writes points and boxes")] = "fraction"
    pictures: Annotated[Form, Field(description="how pictures are sent: PNG as Base64, or as a data URL")] = "base64"
    timeout: Annotated[float, Field(gt=0, description="seconds for a call")] = 20.0
    max_request: ByteSize = Field(default="32MiB", gt=0, validate_default=True, description="limit of a call")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either command or url")
        if self.description is not None:
            raise ValueError("description belongs to each of `tools`")
        if self.command and self.api_key_env:
            raise ValueError("api_key_env is for `url`; a program gets its key by `variables`")
        return self

    @property
    def waits(self) -> float:
        return self.timeout

    @property
    def address(self) -> str | None:
        return self.url

    def build_tools(self, name: str) -> Sequence[Tool]:
        path = f"specialists.{name}"
        if self.url is not None:
            check_settings(self.url, self.api_key_env, path, private=True)
        prefix = f"{name}_" if self.prefix is None else self.prefix
        tools = []
        for tool, spec in self.tools.items():
            key = f"{path}.tools.{tool}"
            parameters = remote.read_parameters(spec.parameters, f"{key}.parameters")
            remote.check_places(parameters, spec.returns, key)
            shown = prefix + re.sub(r"[^A-Za-z0-9_-]", "_", tool)
            function = McpTool(shown, tool, key, self, parameters)
            words = remote.clean_note(spec.description, remote.MAX_DESCRIPTION)
            tools.append(remote.build_remote_tool(shown, function, parameters, words, self.max_calls))
        return tools


@dataclass(frozen=True)
class McpTool:
    name: str  # of our tool
    tool: str  # of the server's
    key: str  # where it stands in the config
    specialist: McpSpecialist
    parameters: Parameters

    def prepare(self) -> None:
        """Start or reach the server, and see whether it still offers this tool."""
        offered = list_offered(self.specialist.server, self.key.partition(".tools.")[0])
        problem = find_difference(self.key, self.tool, self.parameters, offered)
        if problem:
            way_out = "`viewbox tools mcp` prints what the server offers now"
            raise ConfigError(f"{self.key}: {problem}; {way_out}", key=self.key)

    async def __call__(self, /, **arguments: Any) -> ToolOutput:
        specialist = self.specialist
        if specialist.url is not None:
            check_sending(specialist.url)
        values = await concurrency.run_in_thread(self._encode, arguments)
        try:
            result = await background.run_beside(self._call(values))
        except (ToolError, ToolFault) as error:
            raise type(error)(f"{self.name}: {error}") from error
        view = remote.find_picture(self.parameters, arguments)
        return await concurrency.run_in_thread(self._read, result, view)

    async def _call(self, values: dict[str, Any]) -> "CallToolResult":
        return await get_server(self.specialist.server).call(self.tool, values, self.specialist.timeout)

    def _encode(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        spec = self.specialist
        plain, pictures = remote.encode_arguments(self.parameters, arguments, unit=spec.unit, form=spec.pictures)
        size = len(json.dumps(plain)) + sum(map(len, pictures.values()))
        if size > spec.max_request:
            raise ToolError(f"{self.name}: the call is too large ({size} bytes; allowed: {int(spec.max_request)})")
        return {**plain, **pictures}

    def _read(self, result: "CallToolResult", view: View | None) -> ToolOutput:
        parts = result.content[:MAX_PARTS]
        held: list[Any] = [getattr(part, "resource", part) for part in parts]
        texts = [text for part in held if isinstance(text := getattr(part, "text", None), str)]
        images = [part.data for part in parts if part.type == "image"]
        others = len(result.content) - len(texts) - len(images)
        structured = result.structured_content
        if result.is_error:
            said = " ".join(texts).strip() or (json.dumps(structured) if structured else "the server gives no reason")
            raise ToolError(f"{self.name}: {remote.clean_text(said)[:MAX_WORDS]}")
        returns = self.specialist.tools[self.tool].returns
        facts: dict[str, Any] = structured if isinstance(structured, dict) else {}
        if not facts and returns != Returns():  # of servers that write their JSON as text only
            facts, texts = self._parse(texts), []
        if facts and texts and facts == {"result": texts[0]}:
            facts = {}
        texts = [text for text in texts if not repeats_facts(text, facts)]
        output = remote.read_reply(facts, returns, self.specialist.unit, view, self.name)
        if images and output.image is None:
            try:
                output = replace(output, image=remote.read_picture(images[0], "its picture", (remote.PNG, remote.JPEG)))
            except ToolError as error:
                raise ToolFault(f"{self.name} gave a result that cannot be used: {error}") from error
            images = images[1:]
        left = [f"({len(images)} more pictures are not shown)"] if images else []
        left += [f"({others} parts of other kinds are not shown)"] if others else []
        return replace(output, text="\n".join([*filter(None, [output.text, *map(remote.clean_text, texts)]), *left]))

    def _parse(self, texts: list[str]) -> dict[str, Any]:
        try:
            body = parse_body(texts[0].encode("utf-8", "replace")) if texts else None
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise ToolFault(f"{self.name} gave a result that is not a JSON object")
        return body


def repeats_facts(text: str, facts: Mapping[str, object]) -> bool:
    """Return whether a text is the JSON of the facts, as servers send it for clients that read texts only."""
    try:
        return bool(facts) and json.loads(text) in (facts, facts.get("result"))
    except (ValueError, RecursionError):
        return False
