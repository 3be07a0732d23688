"""Scripted replies on the token path: demonstrations, oracles, tests.

`Forced` puts words into the policy's mouth where its script has some and leaves the rest to a model, so "the gold look,
then the model's own reading" is the model's own conversation with one reply decided for it.
"""

from collections.abc import Callable

from viewbox.errors import ModelError
from viewbox.records import RunConfig
from viewbox.rollouts.engine.chat_tokens import ChatTokens
from viewbox.rollouts.generator import Conversation, GeneratedReply, Generator

Script = Callable[[Conversation], str | None]


class Forced:
    """A token generator that replies what `script` says, and asks `model` where the script says None."""

    def __init__(
        self, tokens: ChatTokens, script: Script, model: Generator | None = None, *, max_completion_tokens: int = 4096
    ) -> None:
        self.tokens, self.script, self.model = tokens, script, model
        self.max_completion_tokens = max_completion_tokens
        self.run_config = model.run_config if model else RunConfig(model_name="scripted")

    async def reply(self, conversation: Conversation) -> GeneratedReply:
        text = self.script(conversation)
        if text is None:
            if self.model is None:
                raise ModelError("the script has no reply and there is no model to ask")
            return await self.model.reply(conversation)
        if not self.tokens.observe(conversation, self.max_completion_tokens):
            return GeneratedReply("", "budget")
        ids = self.tokens.encode_reply(text)
        conversation.record.sampled(ids, [0.0] * len(ids))
        return GeneratedReply(self.tokens.decode(ids))

    def join(self, conversation: Conversation) -> None:
        if self.model:
            self.model.join(conversation)

    def leave(self, conversation: Conversation) -> None:
        if self.model:
            self.model.leave(conversation)

    async def close(self) -> None:
        if self.model:
            await self.model.close()
