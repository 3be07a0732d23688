"""A local HuggingFace VLM as a generator: continuous batching of multi-turn image episodes.

Every conversation owns a slot of one preallocated cache (`slots.py`) for as long as it lives. The engine goes from
step to step; a step is at most one model forward (`forwards.py`): the *prefill* of rows whose observation is ready (a
prompt that several rows share once, then its keys and values copied), or the *decoding* of one token for every row
that speaks, whatever turn it is in. While rows decode, tools of other rows run in threads; who has ended makes room for
who waits. What a forward costs: a prefill, its new tokens alone, padded to the longest of the part; a decode step, one
token a row, attending to the columns of the longest row. Vision features are computed once an image (`features.py`).
Log-probs are log_softmax(logits / T) of the sampled ids, before any filter (`sampling.py`).

A run can be repeated bit for bit: when a row comes back from its tool is counted in decode steps (`schedule.py`).
"""

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from viewbox.configs.schema import SamplingParams
from viewbox.envs import concurrency
from viewbox.errors import ImageError, ModelError
from viewbox.records import RunConfig
from viewbox.rollouts.engine.chat_tokens import ChatTokens
from viewbox.rollouts.engine.devices import sent
from viewbox.rollouts.engine.kv_cache import SlotCache, bytes_per_token
from viewbox.rollouts.engine.model_runner import Forwards, inference
from viewbox.rollouts.engine.sampler import Sampler, uniform
from viewbox.rollouts.engine.scheduler import Schedule
from viewbox.rollouts.engine.sequence import Row, Stats
from viewbox.rollouts.engine.vision_cache import Features
from viewbox.rollouts.generator import Conversation, GeneratedReply, Load

DEFAULT_SAMPLING = SamplingParams()


class HFGenerator:
    """Replies from a local model.

    `slots`: conversations in the cache; more may be in flight, those wait. `kv_cache_bytes` bounds keys and values;
    fewer slots are used if not all fit. `max_reply_tokens` bounds one reply, `max_completion_tokens` everything after
    the prompt, observations included. `features` may be shared by generators of one model.
    """

    def __init__(
        self,
        model: Any,
        tokens: ChatTokens,
        *,
        sampling: SamplingParams = DEFAULT_SAMPLING,
        slots: int = 64,
        max_reply_tokens: int = 512,
        max_completion_tokens: int = 4096,
        prefill_tokens: int = 16384,
        kv_cache_bytes: int | None = None,
        tool_wait_timeout: float = 5.0,
        features: Features | None = None,
        model_name: str = "",
    ) -> None:
        self.model, self.tokens, self.slots = model, tokens, slots
        self.sampling, self.sampler = sampling, Sampler(sampling)
        self.max_reply_tokens, self.max_completion_tokens = max_reply_tokens, max_completion_tokens
        self.prefill_tokens, self.kv_cache_bytes = prefill_tokens, kv_cache_bytes
        self.features = features or Features(model, tokens.family)
        self.run_config = RunConfig(
            model_name=model_name, temperature=sampling.temperature, max_tokens=max_completion_tokens
        )
        self.stats = Stats()
        self._engine: asyncio.Task[None] | None = None
        self._failure: Exception | None = None  # the model's, which is everybody's
        self.speaking: list[Row] = []
        self.schedule = Schedule(tool_wait_timeout)
        self._new()

    def _new(self) -> None:
        """An empty cache."""
        self.cache = SlotCache(self.model.config.get_text_config().num_hidden_layers, self.slots)
        self.forwards = Forwards(self.model, self.tokens, self.features, self.cache, self.stats)

    @property
    def rows(self) -> dict[Conversation, Row]:
        """Who is in the engine."""
        return self.schedule.rows

    # ------------------------------------------------------------------ the Generator protocol
    def join(self, conversation: Conversation) -> None:
        if self._engine is None or self._engine.done():
            self._failure = None
            self.schedule.begin()
            self._engine = asyncio.get_running_loop().create_task(self._run())
        self.schedule.join(conversation)

    def leave(self, conversation: Conversation) -> None:
        self.schedule.leave(conversation)

    async def reply(self, conversation: Conversation) -> GeneratedReply:
        for message in conversation.messages[conversation.record.messages :]:
            for image in message.images:
                if image not in self.tokens.images:  # made ready beside the decoding of other rows
                    await concurrency.run(self.tokens.pixels, image)
        if not self.tokens.observe(conversation, self.max_completion_tokens):
            return GeneratedReply("", "budget")
        row = self.rows.get(conversation)
        if row is None:
            raise self._failure or ModelError("the engine was closed")
        return await self.schedule.ask(row)

    def now(self) -> Load:
        waiting = sum(row.slot is None for row in self.rows.values())
        return Load(self.cache.taken, len(self.cache.held), waiting, self.stats.tokens)

    async def close(self) -> None:
        """Ends what is under way and gives the cache back; the generator may be used again."""
        engine, self._engine = self._engine, None
        if engine is not None and not engine.done():
            engine.cancel()
            await asyncio.gather(engine, return_exceptions=True)
        self._rest()
        self._new()

    # ------------------------------------------------------------------ from step to step
    async def _run(self) -> None:
        started = time.perf_counter()
        try:
            with inference(self.model):
                while self.rows:
                    await self.schedule.expect(busy=bool(self.speaking or self._starting()))
                    self._make_room()
                    for part in self._parts(self._starting()):
                        self._prefill(part)
                        await asyncio.sleep(0)
                    if self.speaking:
                        self.speaking = self._sampled(self.speaking, self.forwards.decode(self.speaking))
                        self.schedule.step += 1
                    await asyncio.sleep(0)  # tools, and who drives the episodes
        except Exception as error:
            self._failure = error
        finally:
            self._rest()
            self.stats.busy_seconds += time.perf_counter() - started

    def _rest(self) -> None:
        self.schedule.end(self._failure or ModelError("the engine was closed"))
        self.speaking = []
        self.cache.free()

    def _make_room(self) -> None:
        over = self.schedule.over(self.speaking)
        for row in over:
            self.cache.drop(row)
        if over:
            self.speaking = [row for row in self.speaking if not row.gone]

    def _starting(self) -> list[Row]:
        """Who is to be prefilled now. Who is new gets a slot, in the order of conversations: nobody is overtaken."""
        asking = self.schedule.asking(self.speaking)
        new = [row for row in asking if row.slot is None]
        for row in new:
            if not self._fits(row, new):
                break
            self.cache.take(row)
        return [row for row in asking if row.slot is not None]

    def _fits(self, row: Row, new: Sequence[Row]) -> bool:
        """Whether a row may have a slot now; raises `ModelError` where one episode is too much for the budget.

        With a budget every slot has room for as many tokens as the longest of the `new` rows may become. A longer one
        waits until nobody is in the cache, which is then laid out again.
        """
        if self.kv_cache_bytes is None:
            return self.cache.taken < self.slots
        needed = [len(one.conversation.record.prompt_ids) + self.max_completion_tokens for one in (row, *new)]
        if needed[0] <= self.cache.room:
            return self.cache.taken < len(self.cache.held)
        if self.cache.taken:
            return False
        most = self.kv_cache_bytes // bytes_per_token(self.model)
        if max(needed) > most - 1:
            raise ModelError(
                f"rollout.kv_cache_bytes = {self.kv_cache_bytes}: one episode needs "
                f"{(max(needed) + 1) * bytes_per_token(self.model)} ({max(needed) - self.max_completion_tokens} tokens "
                f"of prompt, at most {self.max_completion_tokens} after it); allowed: at least that, or a lower "
                "rollout.max_completion_tokens"
            )
        self.cache.lay(min(self.slots, most // (max(needed) + 1)), max(needed))
        return True

    def _parts(self, rows: Sequence[Row]) -> Iterator[list[list[Row]]]:
        """Rows with the same prompt together, in parts that one forward takes."""
        groups: dict[Any, list[Row]] = {}
        for row in rows:
            record = row.conversation.record
            try:
                row.images = self.forwards.images(row)
            except ImageError as error:  # it was dropped from memory, and its file is gone
                self.schedule.fail(row, error)
                continue
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
        said = torch.stack([ids.double(), logps.double()]).tolist()  # the one time a step that waits for the device
        for row, one, logp in zip(rows, map(int, said[0]), said[1], strict=True):
            if math.isnan(logp):
                raise ModelError(f"the model's logits are not numbers (after {len(row.said)} tokens of a reply)")
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
        draws = sent([row.uniform[len(row.said)] for row in rows], logits.device)
        return self.sampler.draw(logits, draws, self.tokens.never_sampled, self._seen(rows, logits))

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
        if not self.sampling.stop:
            return False
        tail = self.tokens.decode(
            row.said[-4 * max(map(len, self.sampling.stop)) :]
        )  # a character is at most four byte tokens
        return any(stop in tail for stop in self.sampling.stop)

    def _finish(self, row: Row, reason: str) -> None:
        future = self.schedule.answered(row)
        if future is not None:  # it was not given up while it spoke
            row.conversation.record.sampled(row.said, row.logps)
            future.set_result(GeneratedReply(self.tokens.decode(row.said), reason))
