"""`kind: http`: a model that is served elsewhere, behind one address that takes and returns JSON.

    specialists:
      measure_heart:
        kind: http
        url: http://127.0.0.1:9000/measure
        description: Measures the heart in a chest film.
        parameters:
          properties: {image: {x-kind: picture}, part: {enum: [heart, chest]}}
          required: [image]
        returns: {text: summary, boxes: ["findings[].box"]}

A call is one POST of {"arguments": {…}, "pictures": {"image": "data:image/png;base64,…"}}, and the reply is a JSON
object. All episodes of a process share one client, on the event loop of `network.background`.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, ByteSize, Field

from ...errors import ConfigError, ToolError, ToolFault
from ...network import background
from ...network.connection import Connection
from ...network.data_policy import check_sending
from ...network.errors import AddressError, RequestError, UnusableReplyError
from ...network.hosts import check_settings, read_api_key
from ...network.http import parse_body
from ...utils import concurrency
from ...utils.frozen import FrozenDict, freeze
from ..calling import ToolOutput
from ..tool import Tool
from . import remote
from .remote import Form, Parameters, Returns, Unit
from .spec import MaxPixels, Specialist, register_specialist

log = logging.getLogger("viewbox.envs")

DESCRIPTION = "Asks another model."
ABOUT_THE_CALL = frozenset({400, 404, 413, 415, 422})  # statuses whose message the model may read


@register_specialist("http")
class HttpSpecialist(Specialist):
    """Any address that takes a POST of JSON: a model that is served elsewhere."""

    max_pixels: MaxPixels = 2**23  # of colors, as PNG in Base64, less than `max_request`
    url: Annotated[str, Field(description="http(s)://host[:port]/path, to which every call is sent")]
    parameters: Annotated[
        Mapping[str, Any],
        AfterValidator(freeze),
        Field(
            description="JSON Schema of the arguments; `x-kind: picture`, `point` or `box` marks what is "
            "written as for other tools"
        ),
    ] = FrozenDict()
    returns: Annotated[Returns, Field(description="what the fields of a reply mean; the others are facts")] = Returns()
    unit: Annotated[Unit, Field(description="how the server reads and writes points and boxes")] = "fraction"
    pictures: Form = Field(
        default="data_url", description="how pictures are sent: PNG as a data URL, or as Base64 alone"
    )
    api_key_env: Annotated[
        str | None, Field(min_length=1, description="the environment variable with the API key; it is never saved")
    ] = None
    timeout: float = Field(
        default=50.0, gt=0, description="seconds for all attempts of a call; less than `tool_timeout`"
    )
    attempts: Annotated[int, Field(ge=1, description="attempts of a call, with growing pauses")] = 3
    concurrency: Annotated[int, Field(ge=1, description="requests in flight at once")] = 16
    max_request: ByteSize = Field(default="32MiB", gt=0, validate_default=True, description="limit of a request")
    max_reply: ByteSize = Field(default="16MiB", gt=0, validate_default=True, description="limit of a reply")

    @property
    def waits(self) -> float:
        return self.timeout

    @property
    def address(self) -> str | None:
        return self.url

    def build_tools(self, name: str) -> Sequence[Tool]:
        path = f"specialists.{name}"
        check_settings(self.url, self.api_key_env, path)
        parameters = remote.read_parameters(self.parameters, f"{path}.parameters")
        remote.check_places(parameters, self.returns, path)
        function = HttpTool(name, self, parameters)
        return [remote.build_remote_tool(name, function, parameters, self.description or DESCRIPTION, self.max_calls)]


@dataclass(frozen=True)
class HttpTool:
    """The function of the tool: sends a call and reads the reply."""

    name: str
    spec: HttpSpecialist
    parameters: Parameters

    def prepare(self) -> None:
        """Connect once, so that a wrong address or a missing key ends a run before its first episode."""
        try:
            background.run(self._connect())
        except (AddressError, TimeoutError) as error:
            key = f"specialists.{self.name}.url"
            problem = str(error) or f"no reply within {self.spec.timeout:g} s"
            raise ConfigError(f"{key} = {self.spec.url!r}: {problem}", key=key) from error

    async def __call__(self, /, **arguments: Any) -> ToolOutput:
        check_sending(self.spec.url)
        body = await concurrency.run_in_thread(self._encode, arguments)
        reply, spec = await background.run_beside(self._send(body)), self.spec
        view = remote.find_picture(self.parameters, arguments)
        return await concurrency.run_in_thread(remote.read_reply, reply, spec.returns, spec.unit, view, self.name)

    def _encode(self, arguments: Mapping[str, Any]) -> bytes:
        spec = self.spec
        plain, pictures = remote.encode_arguments(self.parameters, arguments, unit=spec.unit, form=spec.pictures)
        body = json.dumps({"arguments": plain, "pictures": pictures}).encode()
        size, most = len(body), int(spec.max_request)
        if size > most:
            raise ToolError(f"{self.name}: the request is too large ({size} bytes; allowed: {most})")
        return body

    async def _connect(self) -> None:
        client = self._get_client()
        if not client.is_reached:
            async with asyncio.timeout(self.spec.timeout):
                await client.connection.reach()
            client.is_reached = True

    async def _send(self, body: bytes) -> dict[str, Any]:
        """Return the reply to a request, as an object of JSON; raise `ToolError` (a refusal) or `ToolFault`."""
        client = self._get_client()
        info: dict[str, Any] = {}
        async with client.places:
            try:
                deadline = asyncio.get_running_loop().time() + self.spec.timeout
                async with asyncio.timeout_at(deadline):
                    return await client.connection.post(lambda attempt: body, _parse, deadline=deadline, info=info)
            except TimeoutError:
                problem = f"gave no reply within {self.spec.timeout:g} s"
                last = info.get("last_failure")
            except (RequestError, AddressError) as error:
                if isinstance(error, RequestError) and error.status in ABOUT_THE_CALL:
                    raise ToolError(f"{self.name} refused the call: {error}") from None
                problem, last = "gave no reply that can be used", str(error)
                if error.status is None and isinstance(error, AddressError):
                    problem = "cannot be reached"
                elif error.status is not None and not 200 <= error.status < 300:
                    problem = f"failed with HTTP {error.status}"
        log.warning("tool %s: %s %s%s", self.name, self.spec.url, problem, f" ({last})" if last else "")
        raise ToolFault(f"{self.name} {problem}")

    def _get_client(self) -> "_Client":
        clients = _clients.setdefault(asyncio.get_running_loop(), {})
        if self.spec not in clients:
            clients[self.spec] = _Client(self.name, self.spec)
        return clients[self.spec]


class _Client:
    """The connections to one address, and the places for requests."""

    def __init__(self, name: str, spec: HttpSpecialist) -> None:
        variable, setting = spec.api_key_env, f"specialists.{name}.api_key_env"
        key = None if variable is None else read_api_key(spec.url, variable, key=setting)
        self.is_reached = False
        self.places = asyncio.Semaphore(spec.concurrency)
        self.connection = Connection(
            spec.url, subject=f"tool {name}", api_key=key, attempts=spec.attempts, max_body=spec.max_reply
        )


_clients: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[HttpSpecialist, _Client]]" = WeakKeyDictionary()


def _parse(body: bytes) -> dict[str, Any]:
    try:
        reply = parse_body(body)
    except (ValueError, RecursionError):
        raise UnusableReplyError("the reply is not JSON") from None
    if not isinstance(reply, dict):
        raise UnusableReplyError("the reply is not a JSON object")
    if isinstance(error := reply.get("error"), str | dict) and error:
        raise UnusableReplyError("the reply is an error")
    return reply
