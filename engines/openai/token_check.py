"""Does a chat server see the tokens that our engine would? `viewbox rollout --endpoint … --check-tokens` asks this.

A chat server renders the messages of every request itself. Tools that are left out, a picture in another message or an
empty line are enough for a model to do worse than it was trained to. Here the ids of each prompt, which vLLM returns if
it is asked (`return_token_ids`), are compared with those of our engine.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from ...configs.sections import ModelSection
from ...core.messages import ToolImages
from ...errors import ConfigError, ModelError
from ..generator import Conversation, TokenRecord
from ..hf import loading
from ..hf.chat_tokens import ChatTokens

UNLIMITED = 2**31  # tokens of an episode
EXPLAINED = {
    "retokenized": "have its text in other tokens: a reply was sampled in pieces that the tokenizer would not choose, "
    "and a chat server is sent its text only",
    "unknown": "cannot be compared: the server does not return the ids of its prompts (vLLM does, asked with "
    "return_token_ids)",
}
AROUND = 24  # tokens shown before and after the place where two prompts part


@dataclass
class TokenCheck:
    """Compares the prompts of a run. Any thread may call its methods."""

    tokens: ChatTokens
    tool_images: ToolImages
    counts: Counter[str] = field(default_factory=Counter)  # "equal", "retokenized", "different" and "unknown" prompts
    first: str | None = None  # where the first two different texts part
    # Of conversations in progress; None: the server did not say what it sampled, so the next prompt is unknown
    _records: dict[Conversation, TokenRecord | None] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def expect(self, conversation: Conversation) -> list[int]:
        """Return the ids of the next prompt, as our engine has them; none if they cannot be known."""
        record = self._records.setdefault(conversation, TokenRecord())
        if record is None:
            return []
        self.tokens.observe(replace(conversation, record=record), UNLIMITED)
        return [*record.prompt_ids, *record.completion_ids]

    def compare(self, conversation: Conversation, expected: list[int], reply: Mapping[str, Any]) -> None:
        """Count one prompt: what `expect` returned, beside `prompt_token_ids` and the choice's `token_ids` of the
        server's reply."""
        prompt, sampled = _read_ids(reply, "prompt_token_ids"), _read_ids(reply["choices"][0], "token_ids") or None
        record = self._records[conversation]
        with self._lock:
            if record is None or prompt is None or sampled is None:
                self.counts["unknown"] += 1
                self._records[conversation] = None
                return
            has_text = max(prompt, default=0) < len(self.tokens.tokenizer)
            if prompt == expected:
                self.counts["equal"] += 1
            elif has_text and self.tokens.decode_all(prompt) == self.tokens.decode_all(expected):
                self.counts["retokenized"] += 1  # sampled in other pieces than those in which text is tokenized
            else:
                self.counts["different"] += 1
                self.first = self.first or self._describe(conversation, expected, prompt)
        record.add_sampled(sampled, [0.0] * len(sampled))

    def forget(self, conversation: Conversation) -> None:
        self._records.pop(conversation, None)

    def describe(self) -> list[str]:
        total = self.counts.total()
        if not total:
            return ["tokens: nothing was compared, because no prompt was sent"]
        lines = [f"tokens: {self.counts['equal']} of {total} prompts are id for id those of our engine"]
        lines += [f"{self.counts[name]} {text}" for name, text in EXPLAINED.items() if self.counts[name]]
        if self.counts["different"]:
            lines.append(
                f"{self.counts['different']} have another text than our engine's. The first one:\n{self.first}"
            )
            trained = "tool" if self.tokens.template.tool_role else "user"
            if trained != self.tool_images:
                lines.append(
                    f"endpoint.tool_images = {self.tool_images}; this model was trained with pictures of tools as "
                    f"endpoint.tool_images={trained} sends them"
                )
        return lines

    @property
    def passed(self) -> bool:
        """Whether every prompt could be compared, and had our text."""
        return self.counts.total() > 0 and not self.counts["different"] + self.counts["unknown"]

    def _describe(self, conversation: Conversation, ours: list[int], theirs: list[int]) -> str:
        pairs = enumerate(zip(ours, theirs, strict=False))
        place = next((n for n, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
        window = slice(max(0, place - AROUND), place + AROUND)
        turn = sum(message.role == "assistant" for message in conversation.messages)
        return (
            f"  task {conversation.task.id if conversation.task else '?'}, before reply {turn + 1}, token {place} of "
            f"{len(ours)} (the server's prompt has {len(theirs)})\n"
            f"  ours:   {self.tokens.decode_all(ours[window])!r}\n  server: {self.tokens.decode_all(theirs[window])!r}"
            + self._describe_tools(conversation)
        )

    def _describe_tools(self, conversation: Conversation) -> str:
        is_left_out = conversation.tools and conversation.reply_format == "native" not in self.tokens.template.taught
        way_out = "endpoint.native_tools=false writes them into the system message, as our engine does"
        return f"\n  the model's chat template lists no tools; {way_out}" if is_left_out else ""


def _read_ids(part: Mapping[str, Any], name: str) -> list[int] | None:
    ids = part.get(name)
    return ids if isinstance(ids, list) and all(type(number) is int and 0 <= number < 2**31 for number in ids) else None


def build_token_check(section: ModelSection, max_pixels: int, tool_images: ToolImages) -> TokenCheck:
    """Compare the prompts of a server with those of our engine, for the model of a section."""
    try:
        model_config, processor = loading.load_processor(section)
    except ModelError as error:
        raise ConfigError(
            f"--check-tokens needs the model's tokenizer and image processor: {error}; give them as "
            "endpoint.tokenizer=FOLDER",
            key="endpoint.tokenizer",
        ) from error
    loading.set_max_pixels(processor, max_pixels)
    return TokenCheck(ChatTokens(processor, model_config, loading.load_generation_config(section)), tool_images)
