"""Policies without a model: a script, a function of the messages, and a script on the token path.

They serve tests, documentation, dry runs of an environment, demonstrations and oracles.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..core.loop import Policy, ask_policy
from ..errors import ModelError
from ..records import Message, Reply, RunConfig
from .generator import Conversation, Generator

if TYPE_CHECKING:
    from .hf.chat_tokens import ChatTokens

Script = Callable[[Conversation], str | Reply | None]


class ScriptedPolicy:
    """Gives its replies in order, in every episode it plays.
    It counts the assistant messages to find the next reply and holds no state, so one policy can play any number of
    episodes at once. Raises `IndexError` if an episode needs more replies than the script has.

    >>> policy = ScriptedPolicy(["first", "second"])
    >>> policy([Message("system", ("…",)), Message("user", ("?",)), Message("assistant", ("first",))])
    Reply(text='second', tool_calls=(), finish_reason='stop', reasoning='')
    """

    def __init__(self, replies: Sequence[Reply | str]) -> None:
        self.replies = tuple(Reply(reply) if isinstance(reply, str) else reply for reply in replies)

    def __call__(self, messages: Sequence[Message]) -> Reply:
        number = sum(message.role == "assistant" for message in messages)
        if number >= len(self.replies):
            raise IndexError(f"the script has {len(self.replies)} replies; the episode asks for number {number + 1}")
        return self.replies[number]


class PolicyGenerator(Generator):
    """A function (or coroutine function) of the messages as a generator: what `env.play` takes, for many episodes."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.run_config = RunConfig(model_name=getattr(policy, "__name__", type(policy).__name__))

    async def reply(self, conversation: Conversation) -> Reply:
        return await ask_policy(self.policy, conversation.visible_messages)


class ScriptedGenerator(Generator):
    """A token generator that replies with the text of `script`, and asks `model` if the script returns None: the model
    then sees what a scripted zoom shows, as if it had made the zoom itself. Of a model at an endpoint there are no
    `tokens`, and the reply may be a `Reply`."""

    def __init__(
        self,
        tokens: "ChatTokens | None",
        script: Script,
        model: Generator | None = None,
        *,
        max_completion_tokens: int = 4096,
    ) -> None:
        self.tokens, self.script, self.model = tokens, script, model
        self.max_completion_tokens = max_completion_tokens
        self.run_config = model.run_config if model else RunConfig(model_name="scripted")

    @property
    def failure(self) -> Exception | None:
        return getattr(self.model, "failure", None)

    async def reply(self, conversation: Conversation) -> Reply:
        text = self.script(conversation)
        if text is None:
            if self.model is None:
                raise ModelError("the script returned no reply, and there is no model to ask")
            return await self.model.reply(conversation)
        if isinstance(text, Reply) or self.tokens is None:
            conversation.beside.append({})  # what a server sent beside it
            return text if isinstance(text, Reply) else Reply(text)
        if not self.tokens.observe(conversation, self.max_completion_tokens):
            return Reply("", finish_reason="budget")
        ids = self.tokens.encode_reply(text, conversation)
        conversation.record.add_sampled(ids, [0.0] * len(ids))
        return Reply(self.tokens.decode(ids), output_ids=tuple(ids), logprobs=(0.0,) * len(ids))

    def join(self, conversation: Conversation) -> None:
        if self.model:
            self.model.join(conversation)

    def leave(self, conversation: Conversation) -> None:
        if self.model:
            self.model.leave(conversation)

    async def close(self) -> None:
        if self.model:
            await self.model.close()
