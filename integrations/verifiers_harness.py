"""The harness through which verifiers 0.4 plays viewbox environments: one model call per turn, in this process.

verifiers requires that every model call goes through its own endpoint, because its trace records the calls there. A
harness that does so needs no separate program. This harness offers the tools that the environment allows in the current
turn and returns every tool call to the environment, which runs it. Only this file uses private parts of verifiers;
`tests/integrations/test_verifiers.py` checks them.
"""

import asyncio
import importlib.metadata
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from ..core.loop import shorten_reply
from ..core.messages import read_tool_calls, to_openai_messages
from ..errors import ConfigError
from ..network.data_policy import check_sending
from ..records import Reply

__all__ = ["OfferedTools", "ViewboxHarness", "message_to_wire", "vf"]

SUPPORTED = "0.4"
INSTALL = f"verifiers {SUPPORTED} is needed: pip install 'verifiers>=0.4,<0.5'"


def check_version(version: str) -> None:
    """Refuses any other minor version, because its private parts may differ.

    >>> check_version("0.5.1")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: verifiers 0.5.1 is installed; verifiers 0.4 is needed: pip install 'verifiers>=0.4,<0.5'
    """
    if version.split(".")[:2] != SUPPORTED.split("."):
        raise ConfigError(f"verifiers {version} is installed; {INSTALL}")


try:
    check_version(importlib.metadata.version("verifiers"))
    import aiohttp
    import verifiers.v1 as vf
    from verifiers.v1.dialects.chat import REASONING_FIELDS, message_to_wire
    from verifiers.v1.harness import HarnessSession
except ImportError as error:  # also PackageNotFoundError
    raise ConfigError(f"{INSTALL} ({error})") from error

RETRIED_STATUSES = (408, 409, 429, 500, 502, 503, 504)
RETRY_HEADER = "x-stainless-retry-count"  # by this header verifiers tells a repeated request from a new turn
OK = vf.ProgramResult(exit_code=0, stdout="", stderr="")


class OfferedTools(vf.State):
    """The tools that the environment offers in the next turn; not saved with the trace."""

    tools: list[dict[str, Any]] = Field(default_factory=list)


class ViewboxHarnessConfig(vf.HarnessConfig):
    attempts: int = Field(3, ge=1)
    """Attempts per model call if the endpoint is overloaded or fails (status 408, 409, 429, 5xx)."""
    wait: float = Field(0.5, ge=0)
    """Seconds before the second attempt. The pause doubles before each further attempt."""


class ViewboxSession(HarnessSession):
    """One conversation, to which the environment's messages and the model's replies are appended."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), cookie_jar=aiohttp.DummyCookieJar()
        )
        system, _ = self.harness.resolve_prompt(self.data)
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []

    async def _run(self, messages: list[Any] | None) -> vf.ProgramResult:
        self.messages += [message_to_wire(message) for message in messages or []]
        reply, problem = await self._ask(self.harness.config)
        if reply is None:
            return vf.ProgramResult(exit_code=1, stdout="", stderr=problem)
        self.messages.append(repeat_message(reply))
        return OK

    async def _ask(self, config: Any) -> tuple[Mapping[str, Any] | None, str]:
        """The model's next message; None and an error message if every attempt failed."""
        check_sending(self.endpoint)
        body: dict[str, Any] = {"model": self.ctx.model, "messages": self.messages}
        if self.trace.state.tools:
            body["tools"] = self.trace.state.tools
        for attempt in range(config.attempts):
            if attempt:
                await asyncio.sleep(config.wait * 2 ** (attempt - 1))
            headers = {"Authorization": f"Bearer {self.secret}", RETRY_HEADER: str(attempt)}
            async with self.http.post(
                f"{self.endpoint}/chat/completions", json=body, headers=headers, allow_redirects=False
            ) as response:
                text = await response.text()
                if response.status < 300:
                    return (await response.json())["choices"][0]["message"], ""
                if response.status not in RETRIED_STATUSES:
                    break
        return None, f"HTTP {response.status}: {text[:2000]}"

    async def close(self) -> None:
        await super().close()
        await self.http.close()


def repeat_message(reply: Mapping[str, Any]) -> dict[str, Any]:
    """The model's message as the next request repeats it, including its reasoning; a very long text is cut.

    >>> repeat_message({"role": "assistant", "content": None, "refusal": None, "reasoning": "Hm."})
    {'role': 'assistant', 'content': '', 'reasoning': 'Hm.'}
    """
    kept = shorten_reply(Reply(reply.get("content") or "", read_tool_calls(reply)))
    return to_openai_messages([kept.to_message()])[0] | {
        name: reply[name] for name in REASONING_FIELDS if reply.get(name)
    }


class ViewboxHarness(vf.Harness[ViewboxHarnessConfig]):
    """verifiers uses this harness because the published package exports it beside its taskset."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def session(self, *args: Any, **kwargs: Any) -> ViewboxSession:
        return ViewboxSession(self, *args, **kwargs)

    async def launch(self, *args: Any, **kwargs: Any) -> vf.ProgramResult:
        raise NotImplementedError("ViewboxSession makes the model calls of this harness")
