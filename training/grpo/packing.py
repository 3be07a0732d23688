"""Episodes as one packed row of tokens, in which a prompt that episodes share stands once.

    | prompt of group 1 | rest of episode 1 | rest of episode 2 | prompt of group 2 | rest of episode 3 | …

All layers but attention treat every token by itself, so a packed row has no padding and no token twice.
`logprobs.py` has the attention: each rest sees its own prompt and itself. No cache is involved, so gradient
checkpointing works as for any other forward.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import torch

MAX_TOKENS = 16_384  # in a packed row, which bounds what gradient checkpointing computes again at once
# With masks: the square is 64 MB, 128 MB as a kernel of two bytes takes it (268 and 537 MB at 16,384 tokens), and the
# pairs that it hides, which are computed all the same, cost less than the layers' products below 6 widths of tokens.
MAX_MASKED_TOKENS = 8192
MAX_PADDING = 0.1  # largest share of padding in the attention of rows that are computed together


@dataclass(frozen=True)
class TokenSegment:
    """Consecutive tokens: a shared prompt, or the rest of an episode after it."""

    ids: list[int]
    positions: torch.Tensor  # (3, len(ids)) position ids
    images: list[int]  # the keys of its images
    sampled: list[int] = field(default_factory=list)  # indices of the sampled tokens in the completion
    start: int = 0  # the place of the first token in its conversation; not 0: after the prompt before it in the row
    first: int = 0  # the index in `ids` at which the completion begins
    episode: int = -1  # the number of the episode in the batch; -1: a prompt


@dataclass(frozen=True)
class PromptGroup:
    """Episodes with the same prompt. All of it but its last token is `prompt`; None: nothing is shared."""

    prompt: TokenSegment | None
    rows: list[TokenSegment]

    def count_tokens(self) -> int:
        return (len(self.prompt.ids) if self.prompt else 0) + sum(len(row.ids) for row in self.rows)


@dataclass(frozen=True)
class AttentionPart:
    """Rows of one group and of similar length, whose attention is computed together. `prompt`: the number of the
    segment that is the shared prompt; None: nothing is shared. `shape`: rows, and columns of each after the prompt."""

    prompt: int | None
    shape: tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """The attention of a packed row. What all parts read is read at once, as is what is kept of their outputs: a slice
    of every part would be a row of zeros of its own in the backward pass.

    Args:
        parts: one after another.
        lengths: tokens of each segment.
        tokens: the token of the packed row at each column after the prompts, padding included, of all parts.
        kept: (tokens of the packed row,) the place of each token's output among the columns of all parts, prompts
            included.
        reads: (tokens, what they read beside) of the packed row: a segment itself, or the rests of a group its prompt.
    """

    parts: list[AttentionPart]
    lengths: list[int]
    tokens: torch.Tensor
    kept: torch.Tensor
    reads: list[tuple[slice, slice]]


@dataclass(frozen=True)
class Pack:
    """What one forward takes: a packed row, or padded rows of one segment each.

    Args:
        starts: the index of the first token of each segment, in the flattened rows.
        shape: rows, and tokens of each.
        layout: the attention of a packed row; None for padded rows.
    """

    segments: list[TokenSegment]
    starts: list[int]
    shape: tuple[int, int]
    layout: Layout | None = None


def split_into_packs(groups: Sequence[PromptGroup], device: torch.device, *, masked: bool = False) -> Iterator[Pack]:
    """Pack groups into rows of at most `MAX_TOKENS` tokens, or of `MAX_MASKED_TOKENS`. A larger group is split: each
    part has its own prompt."""
    most = MAX_MASKED_TOKENS if masked else MAX_TOKENS
    held: list[PromptGroup] = []
    for group in chain.from_iterable(_split_group(group, most) for group in groups):
        if held and sum(each.count_tokens() for each in [*held, group]) > most:
            yield _build_pack(held, device)
            held = []
        held.append(group)
    yield _build_pack(held, device)


def pad_into_packs(rows: Sequence[TokenSegment], most: int | None = None) -> Iterator[Pack]:
    """Put rows of similar length together, padded right: at most `most` of them, and at most `MAX_TOKENS` tokens."""
    for bucket in split_by_length([len(row.ids) for row in rows]):
        width = len(rows[bucket[0]].ids)
        count = most or max(1, MAX_TOKENS // width)
        for start in range(0, len(bucket), count):
            chunk = [rows[k] for k in bucket[start : start + count]]
            yield Pack(chunk, [k * width for k in range(len(chunk))], (len(chunk), width))


def _split_group(group: PromptGroup, most: int) -> Iterator[PromptGroup]:
    """Yield the group in parts of at most `most` tokens, or of one episode."""
    rows: list[TokenSegment] = []
    for row in group.rows:
        if rows and PromptGroup(group.prompt, [*rows, row]).count_tokens() > most:
            yield PromptGroup(group.prompt, rows)
            rows = []
        rows.append(row)
    yield PromptGroup(group.prompt, rows)


def _build_pack(groups: Sequence[PromptGroup], device: torch.device) -> Pack:
    segments: list[TokenSegment] = []
    starts: list[int] = []
    parts: list[AttentionPart] = []
    tokens: list[torch.Tensor] = []
    positions: list[torch.Tensor] = []
    reads: list[tuple[slice, slice]] = []
    end = columns = 0  # of the packed row, and of all parts

    def add(segment: TokenSegment) -> int:
        nonlocal end
        segments.append(segment)
        starts.append(end)
        end += len(segment.ids)
        reads.append((slice(starts[-1], end), slice(starts[-1], end)))
        return starts[-1]

    for group in groups:
        number = None if group.prompt is None else len(segments)
        shared = 0
        if group.prompt is not None:
            add(group.prompt)
            shared = len(group.prompt.ids)
        positions.append(columns + torch.arange(shared))
        for bucket in split_by_length([len(row.ids) for row in group.rows]):
            rows = [group.rows[k] for k in bucket]
            firsts, lengths = torch.tensor([[add(row), len(row.ids)] for row in rows]).unbind(1)
            width = int(lengths.max())
            column, inside = torch.arange(width), torch.arange(width) < lengths[:, None]
            tokens.append((firsts[:, None] + column.minimum(lengths[:, None] - 1)).flatten())
            places = columns + shared + (shared + width) * torch.arange(len(rows))[:, None] + column
            positions.append(places[inside])
            parts.append(AttentionPart(number, (len(rows), width)))
            columns += len(rows) * (shared + width)
        if number is not None:
            reads.append((slice(starts[number + 1], end), slice(starts[number], starts[number + 1])))
    sizes = [len(segment.ids) for segment in segments]
    layout = Layout(parts, sizes, torch.cat(tokens).to(device), torch.cat(positions).to(device), reads)
    return Pack(segments, starts, (1, end), layout)


def split_by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of the rows in each part: rows of similar length, the longest first."""
    bucket: list[int] = []
    held = 0
    for k in sorted(range(len(lengths)), key=lambda k: -lengths[k]):
        if bucket and held + lengths[k] < (1 - MAX_PADDING) * (len(bucket) + 1) * lengths[bucket[0]]:
            yield bucket
            bucket, held = [], 0
        bucket.append(k)
        held += lengths[k]
    yield bucket
