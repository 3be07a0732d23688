"""Messages ↔ token ids, so that what was sampled is exactly what is trained on.

The chat template is rendered once for the prompt and once for each observation, never for a policy's reply: the
sampled ids stay as they are, and each turn's ids extend the last turn's. What stands between a reply's end token and
the next reply is the difference of two renderings of a stand-in conversation, so no newline is lost.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from viewbox.envs import model_defaults
from viewbox.envs.frozen import thaw
from viewbox.envs.prompts import Prompts
from viewbox.envs.rules import ReplyFormat
from viewbox.envs.types import ImageRef, Message
from viewbox.envs.wire import tools_text
from viewbox.errors import ConfigError, ImageError, ModelError
from viewbox.rollouts.conversation import Conversation
from viewbox.rollouts.families import Family, Pixels, family_of

STAND_IN: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "q"}]},
    {"role": "assistant", "content": "a"},
]


class ChatTokens:
    """A processor's chat template, tokenizer and image processor behind three calls: opening, tail, decode."""

    def __init__(self, processor: Any, model_config: Any) -> None:
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.family: Family = family_of(model_config)
        self.image_id: int = model_config.image_token_id
        eos = self.tokenizer.eos_token_id
        self.end_id: int = eos
        self.pad_id: int = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else eos
        self.stop_ids: frozenset[int] = frozenset({eos, self.pad_id})
        names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
        self.never_sampled: tuple[int, ...] = tuple(
            sorted({getattr(model_config, name) for name in names if getattr(model_config, name, None) is not None})
        )
        control = {*self.tokenizer.all_special_tokens, *self.tokenizer.convert_ids_to_tokens(list(self.never_sampled))}
        self._control = re.compile("|".join(map(re.escape, sorted(control))))
        self._pixels: OrderedDict[str, Pixels] = OrderedDict()
        self._probe()

    # ------------------------------------------------------------------ the template
    def _render(self, messages: list[dict], tools: Sequence[Mapping] | None = None, *, prompt: bool = False) -> str:
        return self.processor.apply_chat_template(
            messages,
            tools=[thaw(tool) for tool in tools] if tools else None,
            tokenize=False,
            add_generation_prompt=prompt,
        )

    def _probe(self) -> None:
        """Finds out what the template can carry, before a run depends on it."""
        tool = {"type": "function", "function": {"name": "probe_tool", "description": "", "parameters": {}}}
        try:
            listed = self._render(STAND_IN[:1], [tool], prompt=True)
            # Only a template that teaches Hermes is asked to: what others teach (XML parameters, …) is not read.
            self.shows_tools = all(part in listed for part in ("probe_tool", "<tool_call>", '"arguments"'))
            seen = self._render(
                [*STAND_IN, {"role": "tool", "content": [{"type": "text", "text": "t"}, {"type": "image"}]}]
            )
            plain = self._render([*STAND_IN, {"role": "tool", "content": [{"type": "text", "text": "t"}]}])
            known = model_defaults.of(self.family.model_type).tool_images == "tool"
            self.tool_role = known and len(seen) > len(plain) and "<tool_response>" in seen
        except Exception as error:  # templates raise what they like
            raise ModelError(f"the chat template cannot render a conversation with tools: {error}") from error
        rendered = self._render(STAND_IN)
        end = self.tokenizer.decode([self.end_id])
        if end not in rendered:
            raise ModelError(f"the chat template does not end a reply with the tokenizer's end token {end!r}")
        self._after_reply = rendered.rpartition(end)[2]
        self._stand_in_length = len(rendered)

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
        if message.role == "tool" and not self.tool_role:
            parts = [
                {"type": "text", "text": "<tool_response>\n"},
                *parts,
                {"type": "text", "text": "\n</tool_response>"},
            ]
            return {"role": "user", "content": parts}
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
        wired = [self._wire(message) for message in messages]
        by_template = self.shows_tools and reply_format in ("hermes", "native")
        if not by_template:
            wired[0]["content"] += tools_text(tools, reply_format, prompts)
        images = [image for message in messages for image in message.images]
        return self._encode(self._render(wired, tools if by_template else None, prompt=True), images), images

    def tail(self, messages: Sequence[Message], *, ended: bool) -> tuple[list[int], list[ImageRef]]:
        """What stands between a reply and the next one; `ended`: the reply's last id is the end token."""
        whole = self._render([*STAND_IN, *(self._wire(message) for message in messages)], prompt=True)
        text = self._after_reply + whole[self._stand_in_length :]
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
        """The image as the model's vision tower takes it; the last few thousand are kept. Raises `ImageError`."""
        found = self._pixels.get(image.hash)
        if found is None:
            try:
                found = self.family.pixels(self.processor.image_processor, image.open())
            except (ValueError, OSError) as error:  # a strip too thin for the image processor, for one
                raise ImageError(f"image {image.hash[:12]} ({image.width}x{image.height}): {error}") from error
            self._pixels[image.hash] = found
            if len(self._pixels) > 2048:
                self._pixels.popitem(last=False)
        else:
            self._pixels.move_to_end(image.hash)
        return found
