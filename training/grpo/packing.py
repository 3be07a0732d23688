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
MAX_PADDING = 0.1  # largest share of padding in the attention of rows that are computed together


@dataclass(frozen=True)
class Segment:
    """Consecutive tokens: a shared prompt, or the rest of an episode after it."""

    ids: list[int]
    positions: torch.Tensor  # (3, len(ids)) position ids
    images: list[int]  # the keys of its images
    sampled: list[int] = field(default_factory=list)  # indices of the sampled tokens in the completion
    first: int = 0  # the index in `ids` at which the completion begins
    episode: int = -1  # the number of the episode in the batch; -1: a prompt


@dataclass(frozen=True)
class Group:
    """Episodes with the same prompt. All of it but its last token is `prompt`; None: nothing is shared."""

    prompt: Segment | None
    rows: list[Segment]

    def count_tokens(self) -> int:
        """Return the number of tokens in a packed row."""
        return (len(self.prompt.ids) if self.prompt else 0) + sum(len(row.ids) for row in self.rows)


@dataclass(frozen=True)
class AttentionPart:
    """Rows of one group and of similar length, whose attention is computed together.

    Args:
        prompt: where the tokens of the shared prompt are in the packed row.
        tokens: (rows, width) the token of the packed row at each column, padded right.
        kept: indices of the columns that are no padding, in the flattened (rows, width).
        with_prompt: whether the prompt's own output is taken from this part.
    """

    prompt: slice
    tokens: torch.Tensor
    kept: torch.Tensor
    with_prompt: bool


@dataclass(frozen=True)
class Pack:
    """A packed row: its segments, in order, the index of the first token of each, and the parts of its attention."""

    segments: list[Segment]
    starts: list[int]
    layout: list[AttentionPart]


def split_into_packs(groups: Sequence[Group], device: torch.device) -> Iterator[Pack]:
    """Pack groups into rows of at most `MAX_TOKENS` tokens. A larger group is split: each part has its own prompt."""
    held: list[Group] = []
    for group in chain.from_iterable(map(_split_group, groups)):
        if held and sum(each.count_tokens() for each in [*held, group]) > MAX_TOKENS:
            yield _build_pack(held, device)
            held = []
        held.append(group)
    yield _build_pack(held, device)


def _split_group(group: Group) -> Iterator[Group]:
    """Yield the group in parts of at most `MAX_TOKENS` tokens, or of one episode."""
    rows: list[Segment] = []
    for row in group.rows:
        if rows and Group(group.prompt, [*rows, row]).count_tokens() > MAX_TOKENS:
            yield Group(group.prompt, rows)
            rows = []
        rows.append(row)
    yield Group(group.prompt, rows)


def _build_pack(groups: Sequence[Group], device: torch.device) -> Pack:
    segments: list[Segment] = []
    starts: list[int] = []
    layout: list[AttentionPart] = []
    end = 0

    def add(segment: Segment) -> int:
        nonlocal end
        segments.append(segment)
        starts.append(end)
        end += len(segment.ids)
        return starts[-1]

    for group in groups:
        if group.prompt is not None:
            add(group.prompt)
        prompt = slice(end - (len(group.prompt.ids) if group.prompt else 0), end)
        for number, part in enumerate(split_by_length([len(row.ids) for row in group.rows])):
            rows = [group.rows[k] for k in part]
            firsts, lengths = torch.tensor([[add(row), len(row.ids)] for row in rows]).unbind(1)
            columns = torch.arange(int(lengths.max()))
            tokens = firsts[:, None] + columns.minimum(lengths[:, None] - 1)
            kept = (columns < lengths[:, None]).flatten().nonzero()[:, 0]
            layout.append(AttentionPart(prompt, tokens.to(device), kept.to(device), with_prompt=number == 0))
    return Pack(segments, starts, layout)


def split_by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of the rows in each part: rows of similar length, the longest first."""
    part: list[int] = []
    held = 0
    for k in sorted(range(len(lengths)), key=lambda k: -lengths[k]):
        if part and held + lengths[k] < (1 - MAX_PADDING) * (len(part) + 1) * lengths[part[0]]:
            yield part
            part, held = [], 0
        part.append(k)
        held += lengths[k]
    yield part
