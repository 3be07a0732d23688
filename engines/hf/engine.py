"""A local HuggingFace vision-language model as a generator: continuous batching of multi-turn episodes with images.

Each conversation owns a slot of one preallocated KV cache (`kv_cache.py`) until it ends; finished conversations free
their slots for waiting ones. The engine works in steps. A step is at most one forward (`model_runner.py`): the
*prefill* of sequences whose observation is ready (a prompt shared by several is computed once, then copied), or the
*decoding* of one token for every running sequence, whatever its turn. Tools run in threads meanwhile. A prefill costs
its new tokens, padded to the longest of the batch. A decode step costs one token per sequence, attending to the columns
of the longest one. Image features are computed once per image (`vision_cache.py`).

Runs repeat bit for bit, because the time that a tool takes is counted in decode steps (`scheduler.py`). Log-probs are
log_softmax(logits / T) of the sampled ids, before any filter (`sampler.py`).
"""

import asyncio
import logging
import math
import time
from collections.abc import Iterator

import torch
from transformers import PreTrainedModel

from ...errors import ImageError, ModelError
from ...records import Reply, RunConfig
from ...utils import concurrency
from ...version import get_versions
from ..generator import Conversation, Generator, Load
from ..settings import LocalSettings as Settings
from .chat_tokens import ChatTokens
from .kv_cache import find_kv_cache_bytes, to_device
from .model_runner import use_eval_mode
from .own_forward import build_runner
from .picture_settings import find_kept
from .sampler import draw_uniform, sample_tokens
from .scheduler import Scheduler, Sequence, Stats
from .vision_cache import VisionCache

log = logging.getLogger("viewbox.engine")


class HFGenerator(Generator):
    """Replies from a local model; generators of the same model may share the cache of image features."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokens: ChatTokens,
        settings: Settings,
        *,
        vision_cache: VisionCache | None = None,
        model_name: str = "",
    ) -> None:
        self.model, self.tokens, self.settings = model, tokens, settings
        self.sampling = settings.sampling
        self.max_completion_tokens = settings.max_completion_tokens
        self.kv_cache_bytes = settings.kv_cache_bytes or find_kv_cache_bytes(model.device)
        self.vision_cache = vision_cache or VisionCache(model, tokens.architecture)
        self.run_config = RunConfig(
            model_name,
            settings.temperature,
            max_tokens=settings.max_completion_tokens,
            versions=get_versions(),
            **find_kept(tokens.architecture.processor),
        )
        self.stats = Stats()
        self.scheduler = Scheduler(settings.tool_wait_timeout)
        self.running: list[Sequence] = []
        self._loop_task: asyncio.Task[None] | None = None
        self.failure: Exception | None = None  # set when the model fails; ends every conversation
        self._create_cache()

    def _create_cache(self) -> None:
        self.runner = build_runner(self.model, self.tokens, self.vision_cache, self.settings.slots, self.stats)
        self.cache = self.runner.cache

    @property
    def sequences(self) -> dict[Conversation, Sequence]:
        return self.scheduler.sequences

    def join(self, conversation: Conversation) -> None:
        if self._loop_task is None or self._loop_task.done():
            self.failure = None
            self.scheduler.start()
            self._loop_task = asyncio.get_running_loop().create_task(self._run_loop())
        self.scheduler.join(conversation)

    def leave(self, conversation: Conversation) -> None:
        self.scheduler.leave(conversation)

    async def reply(self, conversation: Conversation) -> Reply:
        for message in conversation.messages[conversation.record.messages :]:
            for image in message.images:
                if image not in self.tokens.pixel_cache:  # preprocess it while other sequences decode
                    await concurrency.run_in_thread(self.tokens.get_pixels, image)
        if not self.tokens.observe(conversation, self.max_completion_tokens):
            return Reply("", finish_reason="budget")
        sequence = self.sequences.get(conversation)
        if sequence is None:
            raise self.failure or ModelError("the engine was closed")
        return await self.scheduler.request_reply(sequence)

    def get_load(self) -> Load:
        waiting = sum(sequence.slot is None for sequence in self.sequences.values())
        return Load(self.cache.num_used, len(self.cache.owners), waiting, self.stats.tokens)

    async def close(self) -> None:
        """End all conversations and free the cache; the generator can be used again."""
        task, self._loop_task = self._loop_task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._reset()
        self._create_cache()

    async def _run_loop(self) -> None:
        started = time.perf_counter()
        try:
            with use_eval_mode(self.model):
                self.vision_cache.refresh()
                while self.sequences:
                    await self.scheduler.wait_for_due(busy=bool(self.running or self._admit()))
                    self._free_finished()
                    for batch in self._build_prefill_batches(self._admit()):
                        self._prefill(batch)
                        await asyncio.sleep(0)
                    if self.running:
                        self.running = self._sample(self.running, self.runner.decode(self.running))
                        self.scheduler.step += 1
                    await asyncio.sleep(0)  # lets tools and the driver of the episodes run
        except Exception as error:
            self.failure = error
        finally:
            self._reset()
            self.stats.busy_seconds += time.perf_counter() - started

    def _reset(self) -> None:
        self.scheduler.clear(self.failure or ModelError("the engine was closed"))
        self.running = []
        self.cache.owners = [None] * len(self.cache.owners)  # the allocated memory stays

    def _free_finished(self) -> None:
        finished = self.scheduler.pop_finished(self.running)
        for sequence in finished:
            self.cache.free_slot(sequence)
        if finished:
            self.running = [sequence for sequence in self.running if not sequence.finished]

    def _admit(self) -> list[Sequence]:
        """Return the sequences to prefill now. New ones get a slot strictly in the order of conversations."""
        waiting = self.scheduler.get_waiting(self.running)
        new = [sequence for sequence in waiting if sequence.slot is None]
        for sequence in new:
            if not self._has_room(sequence, new):
                break
            self.cache.take_slot(sequence)
        return [sequence for sequence in waiting if sequence.slot is not None]

    def _has_room(self, sequence: Sequence, new: list[Sequence]) -> bool:
        """Return whether a sequence may take a slot now. If `kv_cache_bytes` cannot hold all slots at the length of the
        longest of the `new` sequences, it waits until the cache is empty; then fewer, longer slots are allocated. Raise
        `ModelError` if a single episode does not fit."""
        records = [item.conversation.record for item in (sequence, *new)]
        limit = self.max_completion_tokens
        lengths = [len(item.prompt_ids) + self.tokens.get_room(item, limit) for item in records]
        if lengths[0] <= self.cache.max_len:
            return self.cache.num_used < len(self.cache.owners)
        longest, (bytes_per_token, bytes_of_states) = max(lengths), self.runner.measure_slot()
        needed = (longest + 1) * bytes_per_token + 2 * bytes_of_states  # those now, and those at the end of the prompt
        if len(self.cache.owners) * needed <= self.kv_cache_bytes:
            self.cache.max_len = longest
            return self.cache.num_used < len(self.cache.owners)
        if self.cache.num_used:
            return False
        if needed > self.kv_cache_bytes:
            raise ModelError(
                f"rollout.kv_cache_bytes = {self.kv_cache_bytes}: one episode needs {needed} "
                f"bytes ({longest} tokens, of which at most {limit} after the prompt); allowed: at least that, or a "
                "lower rollout.max_completion_tokens"
            )
        slots = min(self.settings.slots, self.kv_cache_bytes // needed)
        if slots < len(self.cache.owners):
            log.warning(
                "keys and values of %d episodes of %d tokens fit into %.1f GiB (rollout.kv_cache_bytes); %d slots were "
                "asked for (rollout.slots)", slots, longest, self.kv_cache_bytes / 2**30, self.settings.slots
            )  # fmt: skip
        self.cache.allocate(slots, longest)
        return True

    def _build_prefill_batches(self, sequences: list[Sequence]) -> Iterator[list[list[Sequence]]]:
        """Group sequences with the same prompt, and the groups into batches of at most `prefill_tokens`."""
        groups: dict[object, list[Sequence]] = {}
        for sequence in sequences:
            record = sequence.conversation.record
            try:
                sequence.images = self.runner.collect_new_images(sequence)
            except ImageError as error:  # the cache dropped the image, and its file is gone
                self.scheduler.fail(sequence, error)
                continue
            key: object = id(sequence)
            if sequence.length == 0 and not record.completion_ids:
                key = sequence.prompt = (tuple(record.prompt_ids), tuple(image.hash for image in record.images))
            groups.setdefault(key, []).append(sequence)
        batch: list[list[Sequence]] = []
        last = None
        for group in sorted(groups.values(), key=self._get_shape):
            shape = self._get_shape(group)
            full = (len(batch) + 1) * shape[0] > self.settings.prefill_tokens
            if batch and (full or (self.cache.has_states and shape != last)):
                yield batch
                batch = []
            batch.append(group)
            last = shape
        if batch:
            yield batch

    def _get_shape(self, group: list[Sequence]) -> tuple[int, bool]:
        return len(group[0].new_ids), self.cache.has_states and group[0].length > 0

    def _prefill(self, batch: list[list[Sequence]]) -> None:
        """Compute the new tokens of one sequence of each group, copy them to the others, sample the first token."""
        sources = [self._find_same_prompt(group[0]) for group in batch]
        computed = [group[0] for group, source in zip(batch, sources, strict=True) if source is None]
        logits = dict(zip(computed, self.runner.prefill(computed), strict=True)) if computed else {}
        sequences: list[Sequence] = []
        rows: list[torch.Tensor] = []
        for group, source in zip(batch, sources, strict=True):
            first = source or group[0]
            if source is None and first.prompt is not None and first.length == len(first.prompt[0]):
                first.after_prompt = logits[first], first.position, self.cache.copy_states(first.held_slot)
            others = [sequence for sequence in group if sequence is not first]
            if others:
                assert first.prompt is not None
                assert first.after_prompt is not None
                length = len(first.prompt[0])
                for sequence in others:
                    sequence.length, sequence.position = length, first.after_prompt[1]
                    sequence.after_prompt = first.after_prompt
                targets = [sequence.held_slot for sequence in others]
                self.cache.copy_prefix(first.held_slot, targets, length, first.after_prompt[2])
            sequences += group
            rows += [logits[first] if source is None else first.after_prompt[0]] * len(group)  # type: ignore[index]
        for sequence in sequences:
            record = sequence.conversation.record
            offset, room = len(record.completion_ids), self.tokens.get_room(record, self.max_completion_tokens)
            count = min(self.settings.max_reply_tokens, room - offset)
            sequence.output_ids, sequence.logprobs = [], []
            sequence.uniform = draw_uniform(sequence.conversation.seed, offset, count)
        self.running += self._sample(sequences, torch.stack(rows))

    def _find_same_prompt(self, sequence: Sequence) -> Sequence | None:
        if sequence.prompt is None or sequence.length:
            return None
        owners = (owner for owner in self.cache.owners if owner is not None and owner.after_prompt is not None)
        return next((owner for owner in owners if owner.prompt == sequence.prompt), None)

    def _draw(self, sequences: list[Sequence], logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        uniform = to_device([sequence.uniform[len(sequence.output_ids)] for sequence in sequences], logits.device)
        seen = self._mark_seen(sequences, logits)
        return sample_tokens(self.sampling, logits, uniform, self.tokens.never_sampled, seen)

    def _sample(self, sequences: list[Sequence], logits: torch.Tensor) -> list[Sequence]:
        """Draw a token for every sequence; return those whose reply continues."""
        ids, logprobs = self._draw(sequences, logits)
        self.stats.tokens += len(sequences)
        continuing = []
        drawn = torch.stack([ids.double(), logprobs.double()]).tolist()  # the only wait for the device in a step
        for sequence, token, logprob in zip(sequences, map(int, drawn[0]), drawn[1], strict=True):
            if math.isnan(logprob):
                raise ModelError(f"the model's logits are NaN (after {len(sequence.output_ids)} tokens of a reply)")
            sequence.output_ids.append(token)
            sequence.logprobs.append(logprob)
            if token in self.tokens.stop_ids or self._has_stop_string(sequence):
                self._finish_reply(sequence, "stop")
            elif len(sequence.output_ids) >= len(sequence.uniform):
                self._finish_reply(sequence, "length")
            else:
                continuing.append(sequence)
        return continuing

    def _mark_seen(self, sequences: list[Sequence], logits: torch.Tensor) -> torch.Tensor | None:
        """Return the tokens in each conversation, (sequences, vocabulary) bool; None without a repetition penalty."""
        if self.sampling.repetition_penalty == 1.0:
            return None
        seen = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
        for i, sequence in enumerate(sequences):
            record = sequence.conversation.record
            ids = [*record.prompt_ids, *record.completion_ids, *sequence.output_ids]
            seen[i, torch.tensor(ids, device=logits.device)] = True
        return seen

    def _has_stop_string(self, sequence: Sequence) -> bool:
        if not self.sampling.stop:
            return False
        longest = max(map(len, self.sampling.stop))
        tail = self.tokens.decode(sequence.output_ids[-4 * longest :])  # a character is at most four byte tokens
        return any(stop in tail for stop in self.sampling.stop)

    def _finish_reply(self, sequence: Sequence, reason: str) -> None:
        future = self.scheduler.finish_reply(sequence)
        if future is not None:  # the reply is still wanted
            sequence.conversation.record.add_sampled(sequence.output_ids, sequence.logprobs)
            ids, logprobs = tuple(sequence.output_ids), tuple(sequence.logprobs)
            future.set_result(Reply(self.tokens.decode(ids), (), reason, ids, logprobs))
