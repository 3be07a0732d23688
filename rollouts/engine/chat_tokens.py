"""Messages ↔ token ids, so that what was sampled is exactly what is trained on.

The chat template is rendered once for the prompt and once for each observation, never for a policy's reply: the
sampled ids stay as they are, and each turn's ids extend the last turn's. What stands between a reply's end token and
the next reply is what the template writes there after a stand-in reply, so no newline is lost. A reply that ends
otherwise (by another end token, a stop string, its length) is given the template's own end token: the whole then reads
as if the template had rendered what was sampled.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cachetools import LRUCache

from viewbox.envs import model_profiles
from viewbox.envs.messages import tools_text
from viewbox.envs.prompts.templates import Prompts
from viewbox.envs.rules import ReplyFormat
from viewbox.errors import ConfigError, ModelError
from viewbox.images.ref import ImageRef
from viewbox.records import Message
from viewbox.rollouts.engine.architectures import Family, Pixels, family_of
from viewbox.rollouts.engine.chat_template import ChatTemplate
from viewbox.rollouts.engine.pixel_cache import PixelStore
from viewbox.rollouts.generator import Conversation


class ChatTokens:
    """A processor's chat template, tokenizer and image processor behind three calls: opening, tail, decode.

    `generation_config` is the model's, where there is one: it may name more tokens that end a reply.
    """

    def __init__(self, processor: Any, model_config: Any, generation_config: Any = None) -> None:
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.family: Family = family_of(model_config)
        self.image_id: int = model_config.image_token_id
        eos = self.tokenizer.eos_token_id
        self.pad_id: int = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else eos
        self.stop_ids: frozenset[int] = _ends(self.tokenizer, model_config, generation_config) | {eos, self.pad_id}
        names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
        self.never_sampled: tuple[int, ...] = tuple(
            sorted({getattr(model_config, name) for name in names if getattr(model_config, name, None) is not None})
        )
        marks = self.tokenizer.convert_ids_to_tokens([*self.never_sampled, *self.stop_ids & _marks(self.tokenizer)])
        control = {*self.tokenizer.all_special_tokens, *marks}
        self._control = re.compile("|".join(map(re.escape, sorted(control))))
        self.images = PixelStore(self.family, processor.image_processor)
        self._openings: LRUCache[Any, tuple[list[int], list[ImageRef]]] = LRUCache(64)  # of the latest groups
        ends = {self.tokenizer.decode([one]): one for one in [eos, *sorted(self.stop_ids - {eos, self.pad_id})]}
        self.template = ChatTemplate(
            processor,
            self.tokenizer.decode([self.image_id]),
            list(ends),
            tool_images=model_profiles.of(self.family.model_type).tool_images == "tool",
        )
        self.end_id: int = ends[self.template.end]

    # ------------------------------------------------------------------ messages
    def _plain(self, text: str) -> str:
        """`text` with no control token in it: a policy's words come back in errors, and rows hold anything."""
        return self._control.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

    def _wire(self, message: Message) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [
            {"type": "image"} if isinstance(part, ImageRef) else {"type": "text", "text": self._plain(part)}
            for part in message.content
        ]
        if message.role == "system":
            return {"role": "system", "content": self._plain(message.text)}
        if message.role == "tool":
            return self.template.result(parts)
        return {"role": message.role, "content": parts}

    def _encode(self, text: str, images: Sequence[ImageRef]) -> list[int]:
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        holes = ids.count(self.image_id)
        if holes != len(images):
            raise ModelError(f"the chat template left {holes} image placeholders for {len(images)} images")
        counts = iter([self.pixels(image).tokens for image in images])
        return [i for one in ids for i in ([one] * next(counts) if one == self.image_id else [one])]

    def opening(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping],
        reply_format: ReplyFormat = "hermes",
        prompts: Prompts | None = None,
    ) -> tuple[list[int], list[ImageRef]]:
        """The prompt: ids up to where the policy's first reply begins, and the images in it.

        The template shows the tools where it teaches that format; else the text of `prompts` stands in the system
        message.
        """
        name = (tuple(messages), tuple(tools), reply_format, prompts)
        if name in self._openings:  # a group's members begin alike
            ids, images = self._openings[name]
            return [*ids], [*images]
        wired = [self._wire(message) for message in messages]
        by_template = self.template.shows_tools and reply_format in ("hermes", "native")
        if not by_template:
            wired[0]["content"] += tools_text(tools, reply_format, prompts)
        images = [image for message in messages for image in message.images]
        text = self.template.render(self.template.joined(wired), tools if by_template else None, prompt=True)
        ids = self._encode(text, images)
        self._openings[name] = [*ids], [*images]
        return ids, images

    def tail(self, messages: Sequence[Message], *, ended: bool) -> tuple[list[int], list[ImageRef]]:
        """What stands between a reply and the next one; `ended`: the reply's last id is the end token."""
        text = self.template.after_reply([self._wire(message) for message in messages])
        images = [image for message in messages for image in message.images]
        return ([] if ended else [self.end_id]) + self._encode(text, images), images

    def observe(self, conversation: Conversation, max_completion_tokens: int) -> bool:
        """Puts the environment's new messages into the conversation's record, whole or not at all.

        False where they would leave no room for a reply: the record is then as it was.
        """
        record = conversation.record
        new = conversation.messages[record.messages :]
        if not record.prompt_ids:
            if conversation.cut:
                raise ConfigError("env.history: a model's tokens only ever grow; allowed here: full", key="env.history")
            taught = (conversation.tools, conversation.reply_format, conversation.prompts)
            record.prompt_ids, record.images = self.opening(new, *taught)
            record.prompt_images = len(record.images)
        else:
            said = [message for message in new if message.role != "assistant"]
            ids, images = self.tail(said, ended=record.completion_ids[-1] == self.end_id)
            if len(record.completion_ids) + len(ids) >= max_completion_tokens:
                return False
            record.observe(ids)
            record.images = record.images + images
        record.messages = len(conversation.messages)
        return True

    def decode(self, ids: Sequence[int]) -> str:
        """A reply's text, without its end token."""
        kept = [i for i in ids if i not in self.stop_ids]
        return self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def encode_reply(self, text: str) -> list[int]:
        """A reply as a policy might have sampled it, end token included (for scripted policies)."""
        return [*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.end_id]

    # ------------------------------------------------------------------ pixels
    def pixels(self, image: ImageRef) -> Pixels:
        """The image as the model's vision tower takes it. Raises `ImageError`. Any thread may ask."""
        return self.images.of(image)


def _marks(tokenizer: Any) -> frozenset[int]:
    """The tokens that stand for no text of their own: a tokenizer's special and added ones."""
    return frozenset({*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder})


def _ends(tokenizer: Any, model_config: Any, generation_config: Any) -> frozenset[int]:
    """What else ends a reply: the ids of the generation config, and those of the model's config that are no words.

    (A config that says nothing has its class's default, which may be any word of this model's vocabulary.)
    """

    def ids(config: Any) -> set[int]:
        found = getattr(config, "eos_token_id", None)
        return set() if found is None else {found} if isinstance(found, int) else set(found)

    asked = ids(generation_config) | ids(model_config.get_text_config()) & _marks(tokenizer)
    return frozenset(one for one in asked if 0 <= one < len(tokenizer))
