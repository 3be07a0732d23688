"""Messages to token ids and back, so that training sees exactly the tokens that were sampled.

The chat template renders the prompt once and each observation once, never a reply of the policy: sampled ids stay as
they are, and each turn only appends ids. The text between a reply's end token and the next reply is the text that the
template writes after a stand-in reply, so no newline is lost. If a reply ends in another way (another end token, a stop
string, its length), the template's own end token is appended, unless the next message begins with an end token, which
then ends the reply too. The result equals what the template would render for the sampled text.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from threading import Lock
from typing import Any

import torch
from cachetools import LRUCache
from PIL import Image
from transformers import GenerationConfig, PretrainedConfig

from ...core.messages import join_texts, render_tools
from ...core.parsing.reply import split_calls
from ...core.prompts.templates import Prompts
from ...core.settings import ReplyFormat
from ...errors import ConfigError, ImageError, ModelError
from ...images.ref import ImageRef
from ...records import Episode, EpisodeTokens, Message
from ...utils.frozen import thaw
from ...utils.sanitize import break_control_tokens, map_texts
from ..generator import Conversation, ReplyError, TokenRecord
from .architectures import Architecture, Pixels
from .chat_template import PICTURE, ChatTemplate


class ChatTokens:
    """A processor's chat template, tokenizer and image processor. Raise `ModelError` if the architecture is not
    supported, or the chat template cannot be used."""

    def __init__(
        self, processor: Any, model_config: PretrainedConfig, generation_config: GenerationConfig | None = None
    ) -> None:
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.architecture: Architecture = Architecture(model_config, processor)
        self.image_id: int = self.architecture.image_id
        self._mark: str = self.tokenizer.decode([self.image_id])
        self._runs = re.compile(f"(?:{re.escape(self._mark)})+")
        eos = self.tokenizer.eos_token_id
        begin = self.tokenizer("a")["input_ids"][0]
        self._begins = begin == getattr(self.tokenizer, "bos_token_id", None)  # whether it begins a text with a token
        self.pad_id: int = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else eos
        stops = _find_end_ids(self.tokenizer, model_config, generation_config) | {eos, self.pad_id}
        media = _find_media_ids(model_config, processor, self.architecture)
        ends = self._name([eos, *sorted(stops - {eos, self.pad_id})])
        others = self._name(sorted(_get_control_ids(self.tokenizer) - stops - media))
        self.template = ChatTemplate(processor, self.architecture.placeholder, list(ends), list(others))
        self.end_id: int = (others | ends)[self.template.end]
        self.stop_ids: frozenset[int] = stops | {self.end_id}
        self.never_sampled: tuple[int, ...] = tuple(sorted(media))
        controls = [*self.never_sampled, *self.stop_ids & _get_control_ids(self.tokenizer)]
        texts = {*self.tokenizer.all_special_tokens, *self.tokenizer.convert_ids_to_tokens(controls)}
        texts.add(self.architecture.placeholder)  # need not be a token
        self._control = re.compile("|".join(map(re.escape, sorted(texts))))
        self.context: float = getattr(model_config.get_text_config(), "max_position_embeddings", None) or math.inf
        self.pixel_cache = PixelCache(self.architecture)
        self._prompts: LRUCache[Any, tuple[list[int], list[ImageRef]]] = LRUCache(64)  # of the latest groups

    def _name(self, ids: Sequence[int]) -> dict[str, int]:
        return {self.tokenizer.decode([token]): token for token in ids}

    def _to_template_message(self, message: Message) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [  # errors quote the policy, and data may contain anything
            {"type": "image"}
            if isinstance(part, ImageRef)
            else {"type": "text", "text": break_control_tokens(part, self._control)}
            for part in join_texts(message.content)
        ]
        if message.role == "system":
            return {"role": "system", "content": break_control_tokens(message.text, self._control)}
        if message.role == "tool":
            return self.template.build_tool_result(parts)
        return {"role": message.role, "content": parts}

    def _encode(self, text: str, images: Sequence[ImageRef]) -> list[int]:
        return self.encode_text(text, [self.pixel_cache.describe(image)[1] for image in images])

    def encode_text(self, text: str, shown: Sequence[str]) -> list[int]:
        """Return the ids of a rendered text, each image placeholder replaced by the next of `shown`. The text is
        expanded, not the ids: a placeholder may merge with its neighbors. A run of image tokens is tokenized as one,
        ten times as fast."""
        first, *rest = text.split(self.architecture.placeholder)
        if len(rest) != len(shown):
            raise ModelError(f"the chat template left {len(rest)} image placeholders for {len(shown)} images")
        text = "".join([first, *(expansion + after for expansion, after in zip(shown, rest, strict=True))])
        short = self.encode_plain(self._runs.sub(self._mark, text))
        counts = iter([len(run) // len(self._mark) for run in self._runs.findall(text)])
        return [i for token in short for i in ([token] * next(counts) if token == self.image_id else [token])]

    def encode_prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, object]],
        reply_format: ReplyFormat = "hermes",
        prompts: Prompts | None = None,
    ) -> tuple[list[int], list[ImageRef]]:
        """Return the ids of an episode up to its first reply, and the images among them. The template lists the tools
        if it teaches `reply_format`; otherwise `prompts` does, at the end of the system message."""
        key = (tuple(messages), tuple(tools), reply_format, prompts)
        if key in self._prompts:  # the members of a group have the same prompt
            ids, images = self._prompts[key]
            return [*ids], [*images]
        rendered = [self._to_template_message(message) for message in messages]
        by_template = reply_format in self.template.taught
        if not by_template:
            rendered[0]["content"] += render_tools(tools, reply_format, prompts)
        images = [image for message in messages for image in message.images]
        merged = self.template.merge_user_messages(rendered)
        text = self.template.render(merged, tools if by_template else None, prompt=True)
        ids = self._encode(text, images)
        if self._begins and not text.startswith(self.tokenizer.bos_token):
            ids = [self.tokenizer.bos_token_id, *ids]
        self._prompts[key] = [*ids], [*images]
        return ids, images

    def encode_observation(self, messages: Sequence[Message], *, ended: bool) -> tuple[list[int], list[ImageRef]]:
        """Return the tokens between a reply and the next one, and the images among them; `ended`: the reply has its end
        token."""
        text = self.template.render_after_reply([self._to_template_message(message) for message in messages])
        images = [image for message in messages for image in message.images]
        ids = self._encode(self.template.end + text, images)  # some tokenizers mark where a text begins
        begins_with_end = not self.template.writes_end and ids[1] in self.stop_ids
        return ids[1:] if ended or begins_with_end else ids, images

    def observe(self, conversation: Conversation, max_completion_tokens: int) -> bool:
        """Append the environment's new messages to the record of a conversation. Return False, and append none, if they
        would leave no room for a reply.

        Raise `ConfigError` if the environment removes images from the history, which recorded tokens cannot follow,
        `ImageError` for an image that cannot be opened, and `ReplyError` if the prompt fills the model's context."""
        record = conversation.record
        new = conversation.messages[record.messages :]
        if not record.prompt_ids:
            if conversation.drops_images:
                problem = "a local model's tokens are never removed; allowed here: full"
                raise ConfigError(f"env.history: {problem}", key="env.history")
            record.prompt_ids, record.images = self.encode_prompt(
                new, conversation.tools, conversation.reply_format, conversation.prompts
            )
            record.prompt_images = len(record.images)
            if self.get_room(record, max_completion_tokens) < 1:
                size = len(record.prompt_ids)
                raise ReplyError(f"a prompt of {size} tokens leaves none of the model's context of {self.context}")
        else:
            observed = [message for message in new if message.role != "assistant"]
            last = record.completion_ids[-1]
            ids, images = self.encode_observation(observed, ended=last == self.end_id)
            ids = ids[1:] if ids[0] == last else ids  # GLM ends a reply with the mark that begins the next message
            if len(record.completion_ids) + len(ids) >= self.get_room(record, max_completion_tokens):
                return False
            record.add_observation(ids)
            record.images = record.images + images
        record.messages = len(conversation.messages)
        return True

    def get_room(self, record: TokenRecord, max_completion_tokens: int) -> int:
        """Return the most tokens an episode may have after its prompt: what is asked, within the model's context."""
        return int(min(max_completion_tokens, self.context - len(record.prompt_ids)))

    def decode(self, ids: Sequence[int]) -> str:
        return self.decode_all([i for i in ids if i not in self.stop_ids])

    def decode_all(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def encode_plain(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def encode_reply(self, text: str, conversation: Conversation | None = None) -> list[int]:
        """Return the ids of a scripted reply, with the end token. Control tokens in the text are broken: a reply has
        one end. Where the template lists tools, it also writes their calls, unless its syntax cannot hold the
        arguments."""
        written, calls = break_control_tokens(text, self._control), list[Any]()
        if conversation and conversation.tools and conversation.reply_format == "native" in self.template.taught:
            rest, calls = self._split_calls(text, conversation.tools)
            native = self.template.write_reply(break_control_tokens(rest, self._control), calls)
            if native and self._split_calls(native, conversation.tools)[1] == calls:
                written = native
        ids = self.encode_plain(written)
        end = next((place for place, token in enumerate(ids) if token in self.stop_ids), None)
        return [*ids, self._call_end if calls else self.end_id] if end is None else ids[: end + 1]

    def _split_calls(self, text: str, tools: Sequence[Mapping[str, object]]) -> tuple[str, list[Any]]:
        rest, calls = split_calls(text, tools)
        mend = partial(break_control_tokens, tokens=self._control)
        return rest, [map_texts([call.name, thaw(call.arguments)], mend) for call in calls]

    @cached_property
    def _call_end(self) -> int:
        """Return the token that ends a reply with calls where the template writes none: the next message's first."""
        text = self.template.render_after_reply([self.template.build_tool_result(PICTURE)])
        first = self.encode_plain(self.template.end + text)[1]
        return first if first in self.stop_ids else self.end_id

    def get_pixels(self, image: ImageRef) -> Pixels:
        return self.pixel_cache.get(image)

    def count_image_tokens(self, image: ImageRef) -> int:
        return self.pixel_cache.describe(image)[0]


def _get_control_ids(tokenizer: Any) -> frozenset[int]:
    """Return the tokens that do not stand for text: a tokenizer's special and added tokens."""
    return frozenset({*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder})


def _find_media_ids(model_config: Any, processor: Any, architecture: Architecture) -> set[int]:
    """Return the tokens that need features or stand around them: a model must not write them."""
    names = ("image_token_id", "video_token_id", "audio_token_id", "vision_start_token_id", "vision_end_token_id")
    marks = processor.tokenizer(architecture.placeholder, add_special_tokens=False)["input_ids"]
    candidates = {getattr(model_config, name, None) for name in names} | {
        *(getattr(processor, "image_token_ids", None) or ())
    }
    if len(marks) == 1:
        candidates |= {*marks}
    return {i for i in candidates | {architecture.image_id} if i is not None}


def _find_end_ids(tokenizer: Any, model_config: Any, generation_config: Any) -> frozenset[int]:
    """Return the end tokens of the generation config, and those of the model's config that are control tokens: without
    one, a model config has the default of its class, which may be the id of any word in this vocabulary."""

    def get_ids(config: object) -> set[int]:
        ids = getattr(config, "eos_token_id", None)
        return set() if ids is None else {ids} if isinstance(ids, int) else set(ids)

    ids = get_ids(generation_config) | get_ids(model_config.get_text_config()) & _get_control_ids(tokenizer)
    return frozenset(i for i in ids if 0 <= i < len(tokenizer))


def describe_mismatch(episode: EpisodeTokens, tokens: ChatTokens) -> str | None:
    """Return why an episode cannot be trained on: its image tokens are not those of its images, or it is longer than
    the model's context. None if it can."""
    ids = (*episode.prompt_ids, *episode.completion_ids)
    if len(ids) > tokens.context:
        return f"{len(ids)} tokens for the model's context of {tokens.context}"
    placeholders = ids.count(tokens.image_id)
    features = sum(tokens.count_image_tokens(image) for image in episode.images)
    if placeholders == features:
        return None
    return f"{placeholders} image tokens for {features} image features ({len(episode.images)} images)"


def describe_problem(episode: Episode, tokens: ChatTokens) -> str | None:
    """Return why an episode teaches nothing: a fault of the environment or of the reward says nothing about the policy.
    None if it does; `max_turns`, `max_tokens` and `malformed` are the policy's own doing."""
    if (problem := episode.explain_missing_score()) is not None:
        return problem
    if episode.tokens is None or not episode.tokens.completion_ids:
        return f"no tokens (end: {episode.end_reason})"
    return describe_mismatch(episode.tokens, tokens)


def build_stand_in(tokens: ChatTokens) -> EpisodeTokens:
    """Return the row of an episode that teaches nothing: no image, and no token to learn."""
    end = (tokens.end_id,)
    return EpisodeTokens(end, end, (0,), (0.0,))


MAX_BYTES = 2**31
MIN_BYTES_EACH = 2**20  # every image counts for at least this much: at most 2,048 images are kept
MAX_COUNTS = 2**20  # images whose tokens and text are remembered


class PixelCache:
    """Pixels by the hash of the image, in the type in which the vision tower computes. Safe for threads. With
    `counts_by_size`, the tokens of an image are those of a blank one: its pixels are needed at a server only."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self.dtype = torch.float32
        self.num_prepared = 0
        self.counts_by_size = False
        self._pixels: LRUCache[str, Pixels] = LRUCache(
            MAX_BYTES, getsizeof=lambda pixels: max(MIN_BYTES_EACH, pixels.nbytes)
        )
        self._shown: LRUCache[str | tuple[int, int], tuple[int, str]] = LRUCache(MAX_COUNTS)  # by hash, or by size
        self._held: dict[str, Pixels] | None = None  # while `hold` is open
        self._guard = Lock()
        self._locks = [Lock() for _ in range(64)]  # an image always uses the same lock

    def __contains__(self, image: ImageRef) -> bool:
        with self._guard:
            return self._find(image.hash) is not None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Inside the block nothing is dropped, so that the images of a whole batch are preprocessed once."""
        with self._guard:
            self._held = {}
        try:
            yield
        finally:
            with self._guard:
                self._held = None

    def describe(self, image: ImageRef) -> tuple[int, str]:
        """Return the image's (tokens, text) in a prompt; remembered also after its pixels were dropped. Raise
        `ImageError`."""
        size = image.width, image.height
        with self._guard:
            shown = self._shown.get(size if self.counts_by_size else image.hash)
        if shown is None and self.counts_by_size:
            with _named(image):
                blank = self.architecture.preprocess(Image.new("RGB", size))
            shown = self._shown[size] = blank.tokens, blank.text
        if shown is None:
            pixels = self.get(image)
            shown = pixels.tokens, pixels.text
        return shown

    def get(self, image: ImageRef) -> Pixels:
        with self._locks[int(image.hash[:8], 16) % len(self._locks)]:
            with self._guard:
                pixels = self._find(image.hash)
            if pixels is None:
                with _named(image):
                    pixels = self.architecture.preprocess(image.open()).to(self.dtype)
                with self._guard:
                    self.num_prepared += 1
                    self._keep(image.hash, pixels)
        return pixels

    def _find(self, name: str) -> Pixels | None:
        if self._held is None:
            return self._pixels.get(name)
        pixels = self._held.get(name) or self._pixels.get(name)
        if pixels is not None:
            self._held[name] = pixels
        return pixels

    def _keep(self, name: str, pixels: Pixels) -> None:
        self._shown[name] = pixels.tokens, pixels.text
        if self._held is not None:
            self._held[name] = pixels
        if pixels.nbytes <= MAX_BYTES:
            self._pixels[name] = pixels


@contextmanager
def _named(image: ImageRef) -> Iterator[None]:
    """Errors raised inside it, as for a strip too thin for the image processor, become `ImageError` with the image."""
    try:
        yield
    except (ValueError, OSError, RuntimeError, ArithmeticError, LookupError) as error:
        raise ImageError(f"image {image.hash[:12]} ({image.width}x{image.height}): {error}") from error
