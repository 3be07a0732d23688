"""Credit: what each reply of an episode is worth, compared with the other episodes of its task.

A credit is a class with two hooks. `read` turns one episode into a row of numbers, on the process that played it; the
rows of all processes are gathered, padded with NaN; `weigh` turns the rows of whole groups into advantages: one for an
episode, or one for each of its replies. Whoever plays, pads, gathers, masks and learns knows no credit.

    episode      the total relative to its group, for all tokens alike (GRPO, arXiv 2402.03300)
    components   each component relative to its group, then their weighted sum (after GDPO, arXiv 2601.05242)
    turns        each reply by what was earned from it on (`Scores.turns`), relative to its group

Another package adds one by an entry point of `viewbox.credits` (`plugins.py`).
"""

import logging
from collections.abc import Sequence
from typing import Protocol

import torch
from trl.trainer.utils import nanstd

from ...configs.train_sections import CreditSection
from ...errors import ConfigError
from ...plugins import find_plugin
from ...records import Episode, EpisodeTokens
from ...rewards import CombinedReward
from ...utils.importing import load_object
from .groups import EPSILON, SAME_REWARD, find_uniform, group_advantages

log = logging.getLogger("viewbox.train")


class Credit(Protocol):
    """How the rewards of episodes become advantages. It keeps no state: a resumed run makes it anew.

    It is made with `train.scale_rewards` and the other keys of `train.credit`.
    """

    def read(self, episode: Episode, reward: CombinedReward) -> Sequence[float]:
        """Return the numbers of an episode that has a score; `reward` is that of its environment."""

    def weigh(self, rows: torch.Tensor, group_size: int) -> torch.Tensor:
        """Return (episodes, 1), or (episodes, replies), of `rows` (episodes, numbers): groups are adjacent.

        A row of NaN is an episode that teaches nothing: its advantages are 0, and it does not count in its group. Those
        of a group in which nothing differs are exactly 0.
        """


class EpisodeCredit:
    """One number an episode: its total relative to the mean of its group.

    Args:
        scale: what it is divided by; see `group_advantages`.
    """

    def __init__(self, scale: str = "group") -> None:
        self.scale = scale

    def read(self, episode: Episode, reward: CombinedReward) -> list[float]:
        return [_get_total(episode)]

    def weigh(self, rows: torch.Tensor, group_size: int) -> torch.Tensor:
        return group_advantages(rows[:, 0], group_size, self.scale)[:, None]


class ComponentsCredit:
    """Each component of the reward relative to its group and divided by its deviation there, then their weighted sum,
    divided by the deviation of all sums.

    A component that does not apply to an episode (None) says nothing about it, and does not count among the others. So
    a component of small range counts as much as its weight says, and a group in which more components differ counts
    more. Two of equal weight whose sum is the same in all episodes cancel, as in `EpisodeCredit`. The mean of all sums
    is 0 by construction, so none is subtracted, unlike in the paper and in TRL: an idle group stays exactly 0.

    >>> rows = torch.tensor([[0.5, 1.0, 0.5, 0.1], [0.5, 0.0, 0.5, 0.2], [0.5, 1.0, 0.5, 0.2], [0.5, 0.0, 0.5, 0.1]])
    >>> ComponentsCredit().weigh(rows, group_size=4).flatten().round(decimals=2)  # weight, score, weight, score
    tensor([ 0.0000, -0.0000,  1.2200, -1.2200])
    """

    def __init__(self, scale: str = "group") -> None:
        """`scale` is "group" (`check_credit`)."""

    def read(self, episode: Episode, reward: CombinedReward) -> list[float]:
        scores = {} if episode.scores is None else episode.scores.components
        parts = [(part.weight, scores.get(name)) for name, part in reward.components.items() if part.weight]
        return [number for weight, score in parts for number in (weight, torch.nan if score is None else score)]

    def weigh(self, rows: torch.Tensor, group_size: int) -> torch.Tensor:
        weights, scores = rows.view(len(rows), -1, 2).unbind(2)
        parts = [group_advantages(column, group_size, "group") for column in scores.T]
        total = (torch.stack(parts, 1) * weights.nan_to_num()).sum(1, keepdim=True)
        idle = (total.view(-1, group_size).abs() <= SAME_REWARD).all(1).repeat_interleave(group_size)
        total[idle] = 0.0  # components that cancel leave a rounding error
        return total if idle.all() else total / (nanstd(total[~rows.isnan().all(1)]) + EPSILON)


class TurnsCredit:
    """Each reply by its return: what was earned from it on, relative to the mean return of its group at that reply.

    An episode that has ended stands at its last reply: the mean is always over the whole group. A mean over those that
    got so far, or a sum of means with a term for each reply, depends on when an episode ends, which the policy decides:
    it pays or fines a further turn (verl#7244). This mean depends on the others, and on the episode itself only as
    `EpisodeCredit` does: with `scale` "none" the gradient is (n - 1) / n of the exact one, whatever the lengths. If all
    is earned by the last reply, the advantages are those of `EpisodeCredit`.

    Args:
        scale: "group": the root of the mean variance of the group's returns, over its replies; "batch": of all.

    >>> rows = torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.5, torch.nan], [0.0, torch.nan, torch.nan]])
    >>> TurnsCredit("none").weigh(rows, group_size=3)  # returns 1 1 1, 1 .5 (.5), 0 (0 0)
    tensor([[ 0.3333,  0.5000,  0.5000],
            [ 0.3333,  0.0000,  0.0000],
            [-0.6667, -0.5000, -0.5000]])
    """

    def __init__(self, scale: str = "group") -> None:
        self.scale = scale

    def read(self, episode: Episode, reward: CombinedReward) -> list[float]:
        if episode.tokens is not None and not has_replies(episode.tokens, episode.num_turns):
            log.warning("task %s: its tokens do not say which are of which reply: it teaches nothing", episode.task.id)
            return []
        earned = () if episode.scores is None else episode.scores.turns
        return list(earned) or [0.0] * (episode.num_turns - 1) + [_get_total(episode)]

    def weigh(self, rows: torch.Tensor, group_size: int) -> torch.Tensor:
        returns = rows.nan_to_num().flip(1).cumsum(1).flip(1)
        last = (~rows.isnan()).sum(1, keepdim=True).clamp(min=1) - 1  # an episode that has ended stands there
        returns = returns.gather(1, torch.arange(rows.shape[1], device=rows.device).minimum(last))
        returns[rows.isnan().all(1)] = torch.nan
        grouped = returns.view(-1, group_size, rows.shape[1])
        advantages = grouped - grouped.nanmean(1, keepdim=True)
        if self.scale not in ("none", False):
            whole = returns[None] if self.scale == "batch" else grouped
            advantages /= nanstd(whole, dim=1, keepdim=True).square().nanmean(2, keepdim=True).sqrt() + EPSILON
        same = find_uniform(grouped)[:, None].expand_as(advantages)
        return advantages.masked_fill(same, 0.0).nan_to_num(nan=0.0).view_as(rows)


def build_credit(section: CreditSection, scale: str) -> Credit:
    """Return the credit of a run.

    Args:
        scale: `train.scale_rewards`.

    Raises:
        ConfigError: the class cannot be loaded, or does not take the keys of the section.
    """
    path = find_plugin("credits", section.type) or section.type
    make = load_object(path, kind="credit", key="train.credit.type")
    try:
        credit: Credit = make(scale, **(section.model_extra or {}))  # type: ignore[operator]
    except TypeError as error:
        raise ConfigError(f"train.credit: {section.type}: {error}", key="train.credit") from error
    return credit


def has_replies(tokens: EpisodeTokens, count: int) -> bool:
    """Return whether tokens are of so many replies, with the length of each: the credit of one must not go to another.

    >>> has_replies(EpisodeTokens((1,), (2, 3, 4), (1, 1, 1), (0.0,) * 3, replies=(2, 1)), 2)
    True
    """
    return len(tokens.replies) == count and sum(tokens.replies) == sum(tokens.mask)


def spread(advantages: torch.Tensor, episodes: Sequence[EpisodeTokens], width: int) -> torch.Tensor:
    """Return advantages as TRL's loss reads them: (B,) for one an episode, else (B, width), each reply's on its tokens.

    Args:
        advantages: (B, 1 or replies).
        episodes: their tokens. Those that do not say which are of which reply have 0.

    >>> tokens = EpisodeTokens((9,), (1, 2, 3, 4), (1, 1, 0, 1), (0.0,) * 4, replies=(2, 1))
    >>> spread(torch.tensor([[1.0, 2.0]]), [tokens], width=5)
    tensor([[1., 1., 0., 2., 0.]])
    """
    if advantages.shape[1] == 1:
        return advantages[:, 0]
    found = advantages.new_zeros(len(episodes), width)
    for row, own, tokens in zip(found, advantages, episodes, strict=True):
        if has_replies(tokens, len(tokens.replies)):
            sampled = torch.tensor(tokens.mask, dtype=torch.bool, device=row.device)
            lengths = torch.tensor(tokens.replies, device=row.device)
            row[: len(sampled)][sampled] = own[: len(lengths)].repeat_interleave(lengths)
    return found


def find_idle_groups(advantages: torch.Tensor, group_size: int) -> torch.Tensor:
    """Return (groups,): whether all advantages (episodes, 1 or replies) of a group are 0: it teaches nothing."""
    return (advantages.view(-1, group_size * advantages.shape[1]) == 0).all(1)


def _get_total(episode: Episode) -> float:
    total = None if episode.scores is None else episode.scores.total
    return torch.nan if total is None else total
