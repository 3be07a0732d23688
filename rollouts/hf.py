"""A local HuggingFace VLM as a generator: continuous batching of multi-turn image episodes.

Every conversation owns a slot of one preallocated cache (`slots.py`) for as long as it lives. The engine goes from
step to step; a step is at most one model forward (`forwards.py`): the *prefill* of rows whose observation is ready (a
prompt that several rows share once, then its keys and values copied), or the *decoding* of one token for every row
that speaks, whatever turn it is in. While rows decode, tools of other rows run in threads; who has ended makes room for
who waits. What a forward costs: a prefill, its new tokens alone, padded to the longest of the part; a decode step, one
token a row, attending to the columns of the longest row. Vision features are computed once an image (`features.py`).
Log-probs are log_softmax(logits / T) of the sampled ids, before any filter (`sampling.py`).

A run can be repeated bit for bit: a row that got its reply is expected back a fixed number of decode steps later,
neither earlier nor later, however fast its tool was; the engine waits for it then, but at most `patience` seconds.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from viewbox.envs.types import RunConfig
from viewbox.errors import ModelError
from viewbox.rollouts.conversation import Conversation, GeneratedReply
from viewbox.rollouts.features import Features
from viewbox.rollouts.forwards import Forwards, inference
from viewbox.rollouts.rows import Row, Stats
from viewbox.rollouts.sampling import Sampling, uniform
from viewbox.rollouts.slots import SlotCache, bytes_per_token
from viewbox.rollouts.tokens import ChatTokens

LOOK = 4  # a row comes back at the first multiple of so many decode steps …
AWAY = 4  # … that is at least so many after its reply


class HFGenerator:
    """Replies from a local model.

    `slots`: conversations in the cache; more may be in flight, those wait. `kv_bytes` bounds keys and values: where not
    all slots fit, fewer are used. `max_reply_tokens` bounds one reply, `max_completion_tokens` everything after the
    prompt, observations included. `stop`: strings that end a reply beside the end token. `features` may be shared by
    generators of one model. The other settings are explained in `Sampling`.
    """

    def __init__(
        self,
        model: Any,
        tokens: ChatTokens,
        *,
        slots: int = 64,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        stop: Sequence[str] = (),
        max_reply_tokens: int = 512,
        max_completion_tokens: int = 4096,
        prefill_tokens: int = 16384,
        kv_bytes: int | None = None,
        patience: float = 5.0,
        features: Features | None = None,
        model_name: str = "",
    ) -> None:
        self.model, self.tokens, self.slots = model, tokens, slots
        self.sampling = Sampling(temperature, top_p, top_k, min_p, repetition_penalty)
        self.stop = tuple(stop)
        self.max_reply_tokens, self.max_completion_tokens = max_reply_tokens, max_completion_tokens
        self.prefill_tokens, self.kv_bytes, self.patience = prefill_tokens, kv_bytes, patience
        self.features = features or Features(model, tokens.family)
        self.run_config = RunConfig(model_name=model_name, temperature=temperature, max_tokens=max_completion_tokens)
        self.stats = Stats()
        self._engine: asyncio.Task[None] | None = None
        self._new()

    def _new(self) -> None:
        self.cache = SlotCache(self.model.config.get_text_config().num_hidden_layers, self.slots)
        self.forwards = Forwards(self.model, self.tokens, self.features, self.cache, self.stats)
        self._longest = 0  # prompt so far
        self._failure: Exception | None = None  # the model's, which is everybody's
        self._rest()

    def _rest(self) -> None:
        """Nobody is in the engine."""
        self.rows: dict[Conversation, Row] = {}
        self.speaking: list[Row] = []
        self.cache.held = [None] * self.slots
        self.step = 0
        self._leaving: list[Row] = []  # their slots become free when they were expected back
        self._left_at: int | None = None

    # ------------------------------------------------------------------ the Generator protocol
    def join(self, conversation: Conversation) -> None:
        since, self._left_at = self.step if self._left_at is None else self._left_at, None
        self.rows[conversation] = Row(conversation, _back(since))
        if self._engine is None or self._engine.done():
            self._news, self._failure = asyncio.Event(), None
            self._engine = asyncio.get_running_loop().create_task(self._run())
        self._news.set()

    def leave(self, conversation: Conversation) -> None:
        row = self.rows.pop(conversation, None)
        if row is None:  # the engine has failed, or was closed
            return
        row.gone = True
        self._left_at = row.due  # who takes its place in the driver is expected from then on
        self._leaving.append(row)
        self._news.set()

    async def reply(self, conversation: Conversation) -> GeneratedReply:
        if not self.tokens.observe(conversation, self.max_completion_tokens):
            return GeneratedReply("", "budget")
        row = self.rows.get(conversation)
        if row is None:
            raise self._failure or ModelError("the engine was closed")
        if row.late:  # nobody waits for it any more
            row.due, row.late = _back(self.step), False
        row.future = asyncio.get_running_loop().create_future()
        self._news.set()
        return await row.future

    async def close(self) -> None:
        """Ends what is under way and gives the cache back; the generator may be used again."""
        engine, self._engine = self._engine, None
        if engine is not None and not engine.done():
            engine.cancel()
            await asyncio.gather(engine, return_exceptions=True)
        self._new()

    # ------------------------------------------------------------------ from step to step
    async def _run(self) -> None:
        started = time.perf_counter()
        try:
            with inference(self.model):
                while self.rows:
                    await self._expect()
                    self._make_room()
                    for part in self._ready():
                        self._prefill(part)
                        await asyncio.sleep(0)
                    if self.speaking:
                        self.speaking = self._sampled(self.speaking, self.forwards.decode(self.speaking))
                        self.step += 1
                    await asyncio.sleep(0)  # tools, and who drives the episodes
        except Exception as error:
            self._failure = error
            for row in self.rows.values():
                if row.future is not None and not row.future.done():
                    row.future.set_exception(error)
        finally:
            self._rest()
            self.stats.busy_seconds += time.perf_counter() - started

    async def _expect(self) -> None:
        """Waits for the rows that are due now; where nobody speaks or is ready, for the next to be due."""
        if not self.speaking and not any(self._may_start(row) for row in self.rows.values()):
            away = [*self._leaving, *(row for row in self.rows.values() if row.due > self.step or not row.future)]
            awaited = [row.due for row in away if not row.late]
            if not awaited:  # all of them late: whoever comes first
                await self._any_news(None)
                return
            self.step = max(self.step, min(awaited))
        deadline = time.monotonic() + self.patience
        while missing := [row for row in self.rows.values() if row.due <= self.step and not (row.future or row.late)]:
            if not await self._any_news(deadline - time.monotonic()):
                for row in missing:
                    row.late = True

    def _may_start(self, row: Row) -> bool:
        """Whether a row can be prefilled now."""
        return row.future is not None and row.due <= self.step and (row.slot is not None or self._fits(row))

    async def _any_news(self, timeout: float | None) -> bool:
        """Whether a row came or left within `timeout` seconds."""
        self._news.clear()
        try:
            await asyncio.wait_for(self._news.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def _make_room(self) -> None:
        """Frees the slots of who has left, at the step where they were expected."""
        over = [row for row in self._leaving if row.due <= self.step or row in self.speaking]
        for row in over:
            self._leaving.remove(row)
            self.cache.drop(row)
        if over:
            self.speaking = [row for row in self.speaking if not row.gone]

    def _ready(self) -> Iterator[list[list[Row]]]:
        """The rows to prefill now, those with the same prompt together, in parts that one forward takes."""
        groups: dict[Any, list[Row]] = {}
        for row in sorted(self.rows.values(), key=lambda row: row.conversation.index):
            if row in self.speaking or not self._may_start(row):
                continue
            if row.slot is None:
                self.cache.take(row)
            record = row.conversation.record
            key: Any = id(row)
            if row.length == 0 and not record.completion_ids:
                key = row.prompt = (tuple(record.prompt_ids), tuple(image.hash for image in record.images))
            groups.setdefault(key, []).append(row)
        part: list[list[Row]] = []
        for members in sorted(groups.values(), key=lambda members: len(members[0].new_tokens)):
            if part and (len(part) + 1) * len(members[0].new_tokens) > self.prefill_tokens:
                yield part
                part = []
            part.append(members)
        if part:
            yield part

    def _fits(self, row: Row) -> bool:
        """Whether a row may have a slot now; raises `ModelError` where one episode is too much for the budget."""
        if self.kv_bytes is None or self.cache.taken == self.slots:
            return self.cache.taken < self.slots
        self._longest = max(self._longest, len(row.conversation.record.prompt_ids))
        each = (self._longest + self.max_completion_tokens) * bytes_per_token(self.model)
        if each > self.kv_bytes:
            raise ModelError(
                f"rollout.kv_bytes = {self.kv_bytes}: one episode ({self._longest} tokens of prompt and at most "
                f"{self.max_completion_tokens} after it) needs {each}; allowed: at least that, or fewer "
                "rollout.max_completion_tokens"
            )
        return (self.cache.taken + 1) * each <= self.kv_bytes

    def _prefill(self, part: list[list[Row]]) -> None:
        """New tokens of one row of each group into the cache, copies to the others, and their first token."""
        givers = [self._giver(members[0]) for members in part]
        heads = [members[0] for members, giver in zip(part, givers, strict=True) if giver is None]
        found = dict(zip(heads, self.forwards.prefill(heads), strict=True)) if heads else {}
        rows, logits = [], []
        for members, giver in zip(part, givers, strict=True):
            first = giver or members[0]
            if giver is None and first.prompt is not None and first.length == len(first.prompt[0]):
                first.after_prompt = found[first], first.position
            others = [row for row in members if row is not first]
            for row in others:
                row.length, row.position = len(first.prompt[0]), first.after_prompt[1]
                row.after_prompt = first.after_prompt
            if others:
                self.cache.copy(first.place, [row.place for row in others], len(first.prompt[0]))
            rows += members
            logits += [found[first] if giver is None else first.after_prompt[0]] * len(members)
        for row in rows:
            said = len(row.conversation.record.completion_ids)
            room = min(self.max_reply_tokens, self.max_completion_tokens - said)
            row.said, row.logps, row.uniform = [], [], uniform(row.conversation.seed, said, room)
        self.speaking += self._sampled(rows, torch.stack(logits))

    def _giver(self, row: Row) -> Row | None:
        """A row in the cache that begins with the prompt of this new one: it is copied, not computed again."""
        if row.prompt is None or row.length:
            return None
        known = (other for other in self.cache.held if other is not None and other.after_prompt is not None)
        return next((other for other in known if other.prompt == row.prompt), None)

    # ------------------------------------------------------------------ what is said
    def _sampled(self, rows: Sequence[Row], logits: torch.Tensor) -> list[Row]:
        """Draws a token for every row; the rows that go on."""
        ids, logps = self._drawn(rows, logits)
        self.stats.tokens += len(rows)
        going = []
        for row, one, logp in zip(rows, ids.tolist(), logps.tolist(), strict=True):
            row.said.append(one)
            row.logps.append(logp)
            if one in self.tokens.stop_ids or self._stops(row):
                self._finish(row, "stop")
            elif len(row.said) >= len(row.uniform):
                self._finish(row, "length")
            else:
                going.append(row)
        return going

    def _drawn(self, rows: Sequence[Row], logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        draws = torch.tensor([row.uniform[len(row.said)] for row in rows], device=logits.device)
        return self.sampling.draw(logits, draws, self.tokens.never_sampled, self._seen(rows, logits))

    def _seen(self, rows: Sequence[Row], logits: torch.Tensor) -> torch.Tensor | None:
        """What stands in each conversation, (rows, vocabulary) bool, where a repetition penalty asks for it."""
        if self.sampling.repetition_penalty == 1.0:
            return None
        seen = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
        for i, row in enumerate(rows):
            record = row.conversation.record
            seen[i, torch.tensor([*record.prompt_ids, *record.completion_ids, *row.said], device=logits.device)] = True
        return seen

    def _stops(self, row: Row) -> bool:
        if not self.stop:
            return False
        tail = self.tokens.decode(row.said[-4 * max(map(len, self.stop)) :])  # a character is at most four byte tokens
        return any(stop in tail for stop in self.stop)

    def _finish(self, row: Row, reason: str) -> None:
        row.due = _back(self.step)
        future, row.future = row.future, None
        if future is None or future.done():  # given up while it spoke
            return
        row.conversation.record.sampled(row.said, row.logps)
        future.set_result(GeneratedReply(self.tokens.decode(row.said), reason))


def _back(step: int) -> int:
    """The step at which a row that leaves the engine at `step` is expected back."""
    return -(-(step + AWAY) // LOOK) * LOOK
