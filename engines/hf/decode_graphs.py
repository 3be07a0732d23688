"""Decode steps of repeating shapes, recorded as CUDA graphs and replayed.

A decode step is bound by the launches of its operations. A CUDA graph launches them all at once, if shapes and
addresses do not change. So sequences and columns are rounded up to buckets, the inputs of a step stand in fixed
buffers, and the cache is allocated at its full length. A bucket is recorded when it has been used a few times. Its
first replays are compared with steps that run one operation at a time, in their logits and in what they write into the
cache. After any problem all steps run one operation at a time, and a warning says why.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import torch

from .kv_cache import KVCache, to_device

COLUMN_BUCKET = 512
SLOT_BUCKETS = (1, 2, 4)  # then multiples of 8
USES_BEFORE = 4  # steps of a bucket before it is recorded
CHECKS = 2  # replays that are compared: the second has other inputs than were recorded
MIN_FREE_BYTES = 2**30  # a graph keeps its activations
TOLERANCE = {4: 1e-3, 2: 0.02}  # by bytes of a weight, as a share of the largest number

Step = Callable[[], None]
Recorder = Callable[[Step], Step]  # runs and records a step; returns what repeats it
Compute = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], torch.Tensor]
log = logging.getLogger("viewbox.engine")


def choose_recorder(wanted: bool, device: torch.device) -> Recorder | None:
    """Return what records decode steps on a device; None if steps run one operation at a time."""
    if wanted and device.type != "cuda":
        log.warning("rollout.cuda_graphs: there is no GPU, so decode steps run one operation at a time")
    return CudaRecorder() if wanted and device.type == "cuda" else None


class CudaRecorder:
    """Records steps as CUDA graphs that share their memory. Not tested: no GPU was at hand."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: Step) -> Step:
        if torch.cuda.mem_get_info()[0] < MIN_FREE_BYTES:
            raise RuntimeError("less than 1 GiB of the GPU's memory is free")
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up for a new stream
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            step()
        return graph.replay


class DecodeGraphs:
    """Runs decode steps in buckets.

    Args:
        model: the model that plays.
        cache: its keys and values; allocated at full length from now on.
        compute: the logits (rows, vocabulary) of ids (rows, 1), positions (3, rows, 1), columns (rows, 1) and the
            number of columns read; the cache's index is set.
        record: records a step.
    """

    def __init__(self, model: torch.nn.Module, cache: KVCache, compute: Compute, record: Recorder) -> None:
        self.model, self.cache, self.compute, self.record = model, cache, compute, record
        self.problem: str | None = None  # why nothing is recorded any more
        self.num_replayed = 0
        cache.full_length = True
        self._weights = list(model.parameters())
        self._forget()

    def choose_bucket(self, width: int, num_read: int) -> tuple[int, int]:
        """(slots, columns) of the bucket of a step that needs at least these; the cache has so many of both."""
        self.cache.reserve(num_read)
        slots = next((size for size in SLOT_BUCKETS if size >= width), -(-width // 8) * 8)
        columns = -(-num_read // COLUMN_BUCKET) * COLUMN_BUCKET
        return min(slots, len(self.cache.owners)), min(columns, self.cache.index.capacity)

    def run(self, ids: list[int], positions: list[int], lengths: Sequence[int], num_read: int) -> torch.Tensor:
        """Return the logits of a step, (rows, vocabulary) float32, valid until the next one.

        Args:
            ids, positions: the last token of each of the first slots, and its rotary position.
            lengths: tokens in each of these slots; the step writes after them.
            num_read: columns read.
        """
        bucket = len(ids), num_read
        self._check_addresses()
        self._fill_buffers(ids, positions, lengths)
        if self._checks[bucket] == CHECKS:
            self._replays[bucket]()
            self.num_replayed += 1
            return self._logits[: len(ids)]
        self._step(bucket)
        self._uses[bucket] += 1
        if self.problem is None and self._uses[bucket] >= USES_BEFORE:
            self._record_and_check(bucket)
        return self._logits[: len(ids)]

    # ------------------------------------------------------------------ buffers
    def _forget(self) -> None:
        """Drop all graphs and buffers."""
        self._replays: dict[tuple[int, int], Step] = {}
        self._uses: Counter[tuple[int, int]] = Counter()
        self._checks: Counter[tuple[int, int]] = Counter()
        self._addresses: tuple[int, ...] = ()
        self._logits = torch.empty(0)

    def _check_addresses(self) -> None:
        """Drop all graphs if weights, keys or values were moved since they were recorded."""
        tensors = [*self._weights, *self.cache.list_tensors()]
        addresses = tuple(tensor.data_ptr() for tensor in tensors)
        if addresses != self._addresses:
            self._forget()
            self._addresses = addresses

    def _fill_buffers(self, ids: list[int], positions: list[int], lengths: Sequence[int]) -> None:
        if not self._logits.numel():
            self._allocate_buffers()
        rows = len(ids)
        values = to_device([ids, positions, [min(n, self.cache.index.capacity - 1) for n in lengths]], self._ids.device)
        self._ids[:rows, 0], self._positions[0, :rows, 0], self._columns[:rows, 0] = values.unbind(0)

    def _allocate_buffers(self) -> None:
        slots, device = len(self.cache.owners), self._weights[0].device
        vocabulary = self.model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
        self._ids = torch.zeros(slots, 1, dtype=torch.long, device=device)
        self._positions = torch.zeros(1, slots, 1, dtype=torch.long, device=device)
        self._columns = torch.zeros(slots, 1, dtype=torch.long, device=device)
        self._slots = torch.arange(slots, device=device)
        self._logits = torch.empty(slots, vocabulary, device=device)

    def _step(self, bucket: tuple[int, int]) -> None:
        """One step on the buffers, one operation at a time."""
        rows, num_read = bucket
        columns = self._columns[:rows]
        self.cache.index.set(self._slots[:rows], columns, num_read, first_slots=rows)
        logits = self.compute(self._ids[:rows], self._positions[:, :rows].expand(3, -1, -1), columns, num_read)
        self._logits[:rows].copy_(logits)

    # ------------------------------------------------------------------ recording
    def _record_and_check(self, bucket: tuple[int, int]) -> None:
        """Record a bucket whose step has just run, or compares its replay with that step."""
        expected = [tensor.clone() for tensor in self._read_results(bucket[0])]
        try:
            if torch.is_autocast_enabled(expected[0].device.type):
                raise RuntimeError("the model computes under autocast, which keeps copies of weights elsewhere")
            if bucket not in self._replays:
                self._replays[bucket] = self.record(partial(self._step, bucket))
            self._erase(bucket[0])
            self._replays[bucket]()
            gap = max(map(_compute_gap, self._read_results(bucket[0]), expected))
            if not gap <= TOLERANCE[min(4, max(2, self._weights[0].element_size()))]:
                raise RuntimeError(f"a replayed step differs from one that runs one operation at a time (by {gap:.2g})")
            self._checks[bucket] += 1
        except Exception as error:
            self.problem = " ".join(str(error).split())[:300]
            log.warning("rollout.cuda_graphs: %s; decode steps run one operation at a time", self.problem)
            self._replays.clear()
            self._checks.clear()
            self._step(bucket)  # writes the cache again

    def _read_results(self, rows: int) -> list[torch.Tensor]:
        """Return the logits of the last step, and the keys and values that it wrote."""
        slots, columns = self._slots[:rows, None], self._columns[:rows]
        return [self._logits[:rows], *(tensor[slots, :, columns] for tensor in self.cache.list_tensors())]

    def _erase(self, rows: int) -> None:
        """Erases what the last step computed, so that a replay must compute it again."""
        self._logits[:rows].fill_(torch.nan)
        for tensor in self.cache.list_tensors():
            tensor[self._slots[:rows, None], :, self._columns[:rows]] = 0


def _compute_gap(given: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference, as a share of the largest number that is expected; infinite if one is not a
    number."""
    gap = ((given - expected).abs().max() / expected.abs().max().clamp(min=1e-6)).item()
    return math.inf if math.isnan(gap) else gap
