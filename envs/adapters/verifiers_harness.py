"""The program that plays a viewbox environment's seat in verifiers 0.4: one model call a turn, in this process.

verifiers asks that every model call goes through its own endpoint, so that its trace is the record; a harness that
does is free to have no program. This one advertises the tools the environment offers *this* turn and yields on a tool
call: the environment runs it. What of verifiers is private is used in this file alone, and
`tests/envs/adapters/test_verifiers.py` holds what is relied on.
"""

import asyncio
import importlib.metadata
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from viewbox.envs.messages import read_tool_calls, to_openai_messages
from viewbox.errors import ConfigError
from viewbox.records import Message

__all__ = ["Offered", "ViewboxHarness", "message_to_wire", "vf"]

SUPPORTED = "0.4"
INSTALL = f"verifiers {SUPPORTED} is needed: pip install 'verifiers>=0.4,<0.5'"


def supported(version: str) -> None:
    """Refuses another minor version, whose private parts may mean something else.

    >>> supported("0.5.1")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: verifiers 0.5.1 is installed; verifiers 0.4 is needed: pip install 'verifiers>=0.4,<0.5'
    """
    if version.split(".")[:2] != SUPPORTED.split("."):
        raise ConfigError(f"verifiers {version} is installed; {INSTALL}")


try:
    supported(importlib.metadata.version("verifiers"))
    import aiohttp
    import verifiers.v1 as vf
    from verifiers.v1.dialects.chat import REASONING_FIELDS, message_to_wire
    from verifiers.v1.harness import HarnessSession
except ImportError as error:  # PackageNotFoundError is one
    raise ConfigError(f"{INSTALL} ({error})") from error

RETRIED = (408, 409, 429, 500, 502, 503, 504)
COUNT = "x-stainless-retry-count"  # by it verifiers knows a request sent again from a new turn
OK = vf.ProgramResult(exit_code=0, stdout="", stderr="")


class Offered(vf.State):
    """What the environment tells the harness before each turn; it is not saved with the trace."""

    tools: list[dict[str, Any]] = Field(default_factory=list)


class ViewboxHarnessConfig(vf.HarnessConfig):
    attempts: int = Field(3, ge=1)
    """How often a model call is tried where the endpoint is overloaded or fails (status 408, 409, 429, 5xx)."""
    wait: float = Field(0.5, ge=0)
    """Seconds before the second attempt; twice as many before each one after it."""


class ViewboxSession(HarnessSession):
    """One conversation: it grows by what the environment says and by what the model replied."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        system, _ = self.harness.resolve_prompt(self.data)
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []

    async def _run(self, messages: list[Any] | None) -> vf.ProgramResult:
        self.messages += [message_to_wire(message) for message in messages or []]
        said, problem = await self._ask(self.harness.config)
        if said is None:
            return vf.ProgramResult(exit_code=1, stdout="", stderr=problem)
        self.messages.append(repeat_message(said))
        return OK

    async def _ask(self, config: Any) -> tuple[Mapping[str, Any] | None, str]:
        """The endpoint's next message, or what went wrong."""
        body: dict[str, Any] = {"model": self.ctx.model, "messages": self.messages}
        if self.trace.state.tools:
            body["tools"] = self.trace.state.tools
        for attempt in range(config.attempts):
            if attempt:
                await asyncio.sleep(config.wait * 2 ** (attempt - 1))
            headers = {"Authorization": f"Bearer {self.secret}", COUNT: str(attempt)}
            async with self.http.post(f"{self.endpoint}/chat/completions", json=body, headers=headers) as answer:
                text = await answer.text()
                if answer.status < 400:
                    return (await answer.json())["choices"][0]["message"], ""
                if answer.status not in RETRIED:
                    break
        return None, f"HTTP {answer.status}: {text[:2000]}"

    async def close(self) -> None:
        await super().close()
        await self.http.close()


def repeat_message(said: Mapping[str, Any]) -> dict[str, Any]:
    """A model's message as the next request repeats it, with the reasoning it came with.

    >>> repeat_message({"role": "assistant", "content": None, "refusal": None, "reasoning": "Hm."})
    {'role': 'assistant', 'content': '', 'reasoning': 'Hm.'}
    """
    message = Message("assistant", (said.get("content") or "",), tool_calls=read_tool_calls(said))
    return to_openai_messages([message])[0] | {name: said[name] for name in REASONING_FIELDS if said.get(name)}


class ViewboxHarness(vf.Harness[ViewboxHarnessConfig]):
    """Chosen by verifiers because the published package exports it beside its taskset."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def session(self, *given: Any, **named: Any) -> ViewboxSession:
        return ViewboxSession(self, *given, **named)

    async def launch(self, *given: Any, **named: Any) -> vf.ProgramResult:
        raise NotImplementedError("ViewboxSession makes the model calls of this harness")
