"""A local HuggingFace VLM as a generator: batched turns over a slot KV cache.

Every conversation owns a row of one preallocated cache for as long as it lives, so its keys and values stay across
turns and a turn costs only its new tokens. When every conversation in flight has asked for its next reply, one *wave*
runs: the new tokens of all rows are prefilled (a prompt that several rows share once, then copied), and then all rows
decode together, one model forward a token, until each has ended its reply. Positions and the attention mask are
explicit, so nothing depends on state left on the model. Log-probs are log_softmax(logits / T) of the sampled ids,
before any filtering.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from viewbox.envs.types import RunConfig
from viewbox.errors import ModelError
from viewbox.rollouts.conversation import Conversation, GeneratedReply
from viewbox.rollouts.tokens import ChatTokens


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer, (slots, heads, capacity, head size); each row is written at its own columns."""

    keys: Any
    values: Any

    def __init__(self, where: "Where", slots: int) -> None:
        super().__init__()
        self.where, self.slots = where, slots

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        shape = (self.slots, key_states.shape[1], self.where.capacity)
        self.keys = key_states.new_zeros(*shape, key_states.shape[3])
        self.values = value_states.new_zeros(*shape, value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.keys.shape[2] < self.where.capacity:
            pad = (0, 0, 0, self.where.capacity - self.keys.shape[2])
            self.keys, self.values = (torch.nn.functional.pad(x, pad) for x in (self.keys, self.values))
        rows, columns, shown = self.where.rows, self.where.columns, self.where.shown
        self.keys[rows[:, None], :, columns] = key_states.transpose(1, 2)
        self.values[rows[:, None], :, columns] = value_states.transpose(1, 2)
        if self.where.first_rows:  # rows 0 … n−1: a slice, nothing is copied
            return self.keys[: len(rows), :, :shown], self.values[: len(rows), :, :shown]
        return self.keys[rows, :, :shown], self.values[rows, :, :shown]

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        return self.where.shown, 0

    def get_seq_length(self) -> int:
        return self.where.shown

    def get_max_length(self) -> int:
        return self.where.capacity

    get_max_cache_shape = get_max_length


@dataclass
class Where:
    """What the forward under way reads and writes; shared by all layers."""

    capacity: int = 0
    rows: Any = None
    columns: Any = None
    shown: int = 0
    first_rows: bool = False


class SlotCache(Cache):
    """`SlotLayer`s that share one `Where`."""

    def __init__(self, layers: int, slots: int) -> None:
        self.where = Where()
        super().__init__(layers=[SlotLayer(self.where, slots) for _ in range(layers)])

    def copy(self, source: int, targets: list[int], length: int) -> None:
        """The first `length` columns of one row to others."""
        slots: Any = self.layers
        for layer in slots:
            for kept in (layer.keys, layer.values):
                kept[targets, :, :length] = kept[source, :, :length]


@dataclass
class Row:
    """A conversation's slot: how many of its tokens are in the cache, and the position of the next one."""

    slot: int
    length: int = 0
    position: int = 0
    chunk: tuple[int, ...] = ()  # the tokens to prefill now


class HFGenerator:
    """Replies from a local model.

    `slots`: conversations in flight at once (the driver's `concurrency` must not be larger). `max_reply_tokens` bounds
    one reply, `max_completion_tokens` everything after the prompt, observations included. `temperature` 0 is greedy.
    """

    def __init__(
        self,
        model: Any,
        tokens: ChatTokens,
        *,
        slots: int = 64,
        temperature: float = 1.0,
        max_reply_tokens: int = 512,
        max_completion_tokens: int = 4096,
        prefill_tokens: int = 16384,
        model_name: str = "",
    ) -> None:
        self.model, self.tokens, self.slots = model, tokens, slots
        self.temperature = temperature
        self.max_reply_tokens, self.max_completion_tokens = max_reply_tokens, max_completion_tokens
        self.prefill_tokens = prefill_tokens
        self.run_config = RunConfig(model_name=model_name, temperature=temperature, max_tokens=max_completion_tokens)
        text_config = model.config.get_text_config()
        self.cache = SlotCache(text_config.num_hidden_layers, slots)
        self.rows: dict[Conversation, Row] = {}
        self.free = list(range(slots - 1, -1, -1))
        self.pending: dict[Conversation, asyncio.Future[GeneratedReply]] = {}
        self._checking = False

    # ------------------------------------------------------------------ the Generator protocol
    def join(self, conversation: Conversation) -> None:
        if not self.free:
            raise ModelError(f"more than {self.slots} conversations at once: concurrency must be at most slots")
        self.rows[conversation] = Row(self.free.pop())

    def leave(self, conversation: Conversation) -> None:
        self.free.append(self.rows.pop(conversation).slot)
        self.free.sort(reverse=True)
        self.pending.pop(conversation, None)
        self._look()

    async def close(self) -> None:
        self.rows.clear()
        self.cache = SlotCache(len(self.cache.layers), self.slots)
        self.free = list(range(self.slots - 1, -1, -1))

    async def reply(self, conversation: Conversation) -> GeneratedReply:
        if not self.tokens.observe(conversation, self.max_completion_tokens):
            return GeneratedReply("", "budget")
        future = asyncio.get_running_loop().create_future()
        self.pending[conversation] = future
        self._look()
        return await future

    def _look(self) -> None:
        """Runs a wave once every conversation in flight waits for one (after this round of the event loop)."""
        if not self._checking and self.pending:
            self._checking = True
            asyncio.get_running_loop().call_soon(self._maybe_run)

    def _maybe_run(self) -> None:
        self._checking = False
        if not self.pending or len(self.pending) < len(self.rows):
            return
        batch = dict(sorted(self.pending.items(), key=lambda item: item[0].index))
        self.pending = {}
        try:
            replies = self._wave(list(batch))
        except Exception as error:
            for future in batch.values():
                if not future.done():
                    future.set_exception(error)
            return
        for future, said in zip(batch.values(), replies, strict=True):
            if not future.done():
                future.set_result(said)

    # ------------------------------------------------------------------ a wave
    @torch.no_grad()
    def _wave(self, batch: list[Conversation]) -> list[GeneratedReply]:
        with inference(self.model):
            logits = self._prefill(batch)
            return self._decode(batch, logits)

    def _prefill(self, batch: list[Conversation]) -> torch.Tensor:
        """Every row's chunk into the cache; the logits after each, (rows, vocabulary)."""
        heads: dict[Any, list[int]] = {}
        for i, conversation in enumerate(batch):
            row, record = self.rows[conversation], conversation.record
            row.chunk = tuple([*record.prompt_ids, *record.completion_ids][row.length :])
            shared = row.length == 0 and (row.chunk, tuple(image.hash for image in record.images))
            heads.setdefault(shared or i, []).append(i)
        logits: dict[int, torch.Tensor] = {}
        for part in self._parts(list(heads.values()), batch):
            found = self._forward_chunks([batch[members[0]] for members in part])
            for members, one in zip(part, found, strict=True):
                logits.update(dict.fromkeys(members, one))
                first, *others = (self.rows[batch[i]] for i in members)
                for row in others:
                    row.length, row.position = first.length, first.position
                if others:
                    self.cache.copy(first.slot, [row.slot for row in others], first.length)
        return torch.stack([logits[i] for i in range(len(batch))])

    def _parts(self, groups: list[list[int]], batch: list[Conversation]) -> Iterator[list[list[int]]]:
        """Groups in sub-batches of at most `prefill_tokens` padded tokens, of similar length."""
        length: Callable[[list[int]], int] = lambda members: len(self.rows[batch[members[0]]].chunk)  # noqa: E731
        part: list[list[int]] = []
        for members in sorted(groups, key=length):
            if part and (len(part) + 1) * length(members) > self.prefill_tokens:
                yield part
                part = []
            part.append(members)
        yield part

    def _forward_chunks(self, batch: list[Conversation]) -> torch.Tensor:
        rows = [self.rows[conversation] for conversation in batch]
        lengths = [len(row.chunk) for row in rows]
        device, width = self.model.device, max(lengths)
        ids = torch.full((len(rows), width), self.tokens.pad_id)
        positions = torch.zeros(3, len(rows), width, dtype=torch.long)
        pixels = []
        for i, (conversation, row) in enumerate(zip(batch, rows, strict=True)):
            count = row.chunk.count(self.tokens.image_id)
            new = self._new_pixels(conversation, count)
            pixels += new
            ids[i, : lengths[i]] = torch.tensor(row.chunk)
            grids = [one.grid for one in new]
            stretch, row.position = self.tokens.family.positions(
                list(row.chunk), self.tokens.image_id, grids, row.position
            )
            positions[:, i, : lengths[i]] = stretch
        vision = self.tokens.family.vision_inputs(pixels, device, self.model.dtype)
        found = self._forward(
            rows, ids.to(device), positions.to(device), torch.tensor(lengths, device=device), **vision
        )
        for row, length in zip(rows, lengths, strict=True):
            row.length += length
        return found

    def _new_pixels(self, conversation: Conversation, tokens: int) -> list[Any]:
        """The images whose placeholders are the `tokens` image tokens of the chunk: the record's last ones."""
        found: list[Any] = []
        for image in reversed(conversation.record.images):
            if tokens <= 0:
                break
            found.append(self.tokens.pixels(image))
            tokens -= found[-1].tokens
        return found[::-1]

    def _forward(
        self, rows: Sequence[Row], ids: torch.Tensor, positions: torch.Tensor, lengths: torch.Tensor, **vision: Any
    ) -> torch.Tensor:
        """One model forward; `ids` (rows, width) go to each row's next columns. Logits at each row's last token."""
        device, width = ids.device, ids.shape[1]
        slots = torch.tensor([row.slot for row in rows], device=device)
        filled = torch.tensor([row.length for row in rows], device=device)
        where = self.cache.where
        where.columns = filled[:, None] + torch.arange(width, device=device)
        where.shown = max(row.length for row in rows) + width
        if where.shown > where.capacity:
            where.capacity = max(where.shown + 128, 2 * where.capacity)
        where.rows, where.first_rows = slots, [row.slot for row in rows] == list(range(len(rows)))
        mask = torch.arange(where.shown, device=device)[None, None, None, :] <= where.columns[:, None, :, None]
        if self.model.config.get_text_config()._attn_implementation != "sdpa":  # an additive mask is understood by all
            lowest = torch.finfo(self.model.dtype).min
            mask = torch.zeros(mask.shape, dtype=self.model.dtype, device=device).masked_fill(~mask, lowest)
        if vision:
            vision["mm_token_type_ids"] = (ids == self.tokens.image_id).int()
        keep = 1 if width == 1 else lengths.max() - lengths.min() + 1
        out = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=int(keep),
            **vision,
        )
        at = lengths - 1 - (width - int(keep))
        return out.logits[torch.arange(len(rows), device=device), at].float()

    def _decode(self, batch: list[Conversation], logits: torch.Tensor) -> list[GeneratedReply]:
        """Samples until every row has ended its reply or run out of tokens."""
        device = logits.device
        rows = [self.rows[conversation] for conversation in batch]
        room = [
            min(self.max_reply_tokens, self.max_completion_tokens - len(conversation.record.completion_ids))
            for conversation in batch
        ]
        uniform = torch.stack([_uniform(conversation, max(room)) for conversation in batch]).to(device)
        said: list[list[int]] = [[] for _ in batch]
        logps: list[list[float]] = [[] for _ in batch]
        live = list(range(len(batch)))
        step = 0
        while True:
            ids, found = self._sample(logits, uniform[live, step])
            going = []
            for k, (i, one, logp) in enumerate(zip(live, ids.tolist(), found.tolist(), strict=True)):
                said[i].append(one)
                logps[i].append(logp)
                if one not in self.tokens.stop_ids and len(said[i]) < room[i]:
                    going.append(k)
            if not going:
                break
            step += 1
            live = [live[k] for k in going]
            order = sorted(range(len(live)), key=lambda k: rows[live[k]].slot)  # slots in order: mostly a plain slice
            live = [live[k] for k in order]
            chosen = [rows[i] for i in live]
            new = ids[[going[k] for k in order]][:, None]
            positions = torch.tensor([row.position for row in chosen], device=device)[None, :, None].expand(3, -1, -1)
            logits = self._forward(chosen, new, positions, torch.ones(len(chosen), dtype=torch.long, device=device))
            for row in chosen:
                row.length += 1
                row.position += 1
        replies = []
        for i, conversation in enumerate(batch):
            conversation.record.sampled(said[i], logps[i])
            reason = "stop" if said[i][-1] in self.tokens.stop_ids else "length"
            replies.append(GeneratedReply(self.tokens.decode(said[i]), reason))
        return replies

    def _sample(self, logits: torch.Tensor, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(ids, log-probs) of one token a row, by inverting the cumulative distribution at `uniform`."""
        logp = torch.log_softmax(logits / (self.temperature or 1.0), dim=-1)
        allowed = logp.clone()
        allowed[:, list(self.tokens.never_sampled)] = -torch.inf
        if self.temperature == 0:
            ids = allowed.argmax(dim=-1)
        else:
            cumulative = allowed.double().softmax(dim=-1).cumsum(dim=-1)  # of what is allowed, however unlikely it was
            target = uniform[:, None] * cumulative[:, -1:] * (1 - 1e-9)
            ids = torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=logits.shape[1] - 1)
        return ids, logp.gather(1, ids[:, None])[:, 0]


def _uniform(conversation: Conversation, count: int) -> torch.Tensor:
    """The random numbers of one reply: fixed by the sample's seed and how much it has said, not by its batch."""
    rng = np.random.default_rng([conversation.seed, len(conversation.record.completion_ids)])
    return torch.from_numpy(rng.random(count))


@contextmanager
def inference(model: Any) -> Iterator[None]:
    """`eval()` without gradient checkpointing (which silently drops the cache), both as before afterwards."""
    modes = [(module, module.training) for module in model.modules()]  # parts may be frozen in eval mode
    checkpointed = [m for m in model.modules() if getattr(m, "gradient_checkpointing", False)]
    model.eval()
    for module in checkpointed:
        module.gradient_checkpointing = False
    try:
        yield
    finally:
        for module in checkpointed:
            module.gradient_checkpointing = True
        for module, training in modes:
            module.training = training
