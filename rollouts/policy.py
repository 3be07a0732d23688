"""A plain function of the messages as a generator: what `env.play` takes, for many episodes at once."""

import inspect
from collections.abc import Callable
from typing import Any

from viewbox.envs.state import Reply
from viewbox.records import Message, RunConfig
from viewbox.rollouts.generator import Conversation, GeneratedReply

Policy = Callable[[list[Message]], Any]


class PolicyGenerator:
    """Asks `policy` (a function or a coroutine function of the messages) for a string or a `Reply`.

    Whatever it raises ends the run: it is the program's own.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.run_config = RunConfig(model_name=getattr(policy, "__name__", type(policy).__name__))

    async def reply(self, conversation: Conversation) -> GeneratedReply:
        said = self.policy(conversation.shown())
        said = await said if inspect.isawaitable(said) else said
        said = Reply(said) if isinstance(said, str) else said
        return GeneratedReply(said.text, said.finish_reason, said.tool_calls)

    def join(self, conversation: Conversation) -> None: ...

    def leave(self, conversation: Conversation) -> None: ...

    async def close(self) -> None: ...
