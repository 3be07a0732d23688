"""Credit: what each reply of an episode is worth, compared with the other episodes of its task.

It has two hooks, because a group may lie on several processes: `read` turns an episode into a row of numbers where it
was played; the rows of all are gathered, padded with NaN; `weigh` turns those of whole groups into advantages: one for
an episode, or one for each of its replies. Whoever plays, pads, gathers, masks and learns knows no credit.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from trl.trainer.utils import nanstd

from ...errors import ConfigError, ModelError, ViewboxError
from ...records import Episode, EpisodeTokens
from ...registry import list_plugins
from ...rewards import CombinedReward
from ...utils.concurrency import contain_exit, unwrap
from ...utils.importing import load_object
from ...utils.terminal import describe_error
from .groups import EPSILON, SAME_REWARD, find_uniform, group_advantages

MAX_REASON = 500  # characters kept of why a credit failed


class Credit(Protocol):
    """How rewards become advantages. It is made with `train.scale_rewards`, and keeps no state: a resumed run makes it
    anew."""

    def read(self, episode: Episode, reward: CombinedReward) -> Sequence[float]:
        """Return the numbers of an episode that has a score; `reward` is that of its environment."""

    def weigh(self, rows: torch.Tensor, group_size: int) -> torch.Tensor:
        """Return (episodes, 1), or (episodes, replies), of `rows` (episodes, numbers): groups are adjacent.
        A row of NaN is an episode that teaches nothing: its advantages are 0, and it does not count in its group. Those
        of a group in which nothing differs are exactly 0."""


class EpisodeCredit:
    """The total relative to its group, for all tokens alike (GRPO, arXiv 2402.03300), in the `scale` of that."""

    def __init__(self, scale: str = "group") -> None:
        self.scale = scale

    def read(self, episode: Episode, reward: CombinedReward) -> list[float]:
        total = None if episode.scores is None else episode.scores.total
        return [torch.nan if total is None else total]

    def weigh(self, rows: torch.Tensor, group_size: int) -> torch.Tensor:
        return group_advantages(rows[:, 0], group_size, self.scale)[:, None]


class ComponentsCredit(EpisodeCredit):
    """Each component of the reward relative to its group and divided by its deviation there; then their weighted sum,
    divided by the deviation of all sums (after GDPO, arXiv 2601.05242). One that does not apply says nothing.

    The mean of all sums is 0 by construction. None is subtracted, unlike in the paper and in TRL, so that an idle group
    stays exactly 0; so do components that cancel.

    >>> rows = torch.tensor([[0.5, 1.0, 0.5, 0.1], [0.5, 0.0, 0.5, 0.2], [0.5, 1.0, 0.5, 0.2], [0.5, 0.0, 0.5, 0.1]])
    >>> ComponentsCredit().weigh(rows, group_size=4).flatten().round(decimals=2)  # weight, score, weight, score
    tensor([ 0.0000, -0.0000,  1.2200, -1.2200])
    """

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


class TurnsCredit(EpisodeCredit):
    """Each reply by its return: what was earned from it on, relative to the mean return of its group at that reply.

    An episode that has ended stands at its last reply: the mean is always over the whole group. A mean of those that
    got so far, or a sum of means with a term for each reply, pays or fines a further turn, because the policy decides
    when an episode ends (verl#7244; docs/credit.md). With `scale` "none" the gradient is (n - 1) / n of the exact one,
    whatever the lengths. "group" divides by the root of the mean variance of the group's returns, over its replies.

    >>> rows = torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.5, torch.nan], [0.0, torch.nan, torch.nan]])
    >>> TurnsCredit("none").weigh(rows, group_size=3)  # returns 1 1 1, 1 .5 (.5), 0 (0 0)
    tensor([[ 0.3333,  0.5000,  0.5000],
            [ 0.3333,  0.0000,  0.0000],
            [-0.6667, -0.5000, -0.5000]])
    """

    def read(self, episode: Episode, reward: CombinedReward) -> list[float]:
        if episode.tokens is not None and len(episode.tokens.replies) != episode.num_turns:
            raise ModelError("train.credit = turns: the engine does not say how many tokens each reply has")
        earned = [] if episode.scores is None else [*episode.scores.turns]
        return earned or [0.0] * (episode.num_turns - 1) + super().read(episode, reward)

    def weigh(self, rows: torch.Tensor, group_size: int) -> torch.Tensor:
        last = (~rows.isnan()).sum(1, keepdim=True).clamp(min=1) - 1
        returns = rows.nan_to_num().flip(1).cumsum(1).flip(1)
        returns = returns.gather(1, torch.arange(rows.shape[1], device=rows.device).minimum(last))
        grouped = returns.masked_fill(rows.isnan().all(1, keepdim=True), torch.nan).view(-1, group_size, rows.shape[1])
        advantages = grouped - grouped.nanmean(1, keepdim=True)
        if self.scale in ("group", "batch"):
            whole = grouped.flatten(0, 1)[None] if self.scale == "batch" else grouped
            advantages /= nanstd(whole, dim=1, keepdim=True).square().nanmean(2, keepdim=True).sqrt() + EPSILON
        return advantages.masked_fill(find_uniform(grouped)[:, None], 0.0).nan_to_num(nan=0.0).view_as(rows)


def build_credit(name: str, scale: str) -> Credit:
    """Return the credit of a run: its `train.credit.type`, with its `train.scale_rewards`."""
    make: Any = load_object(list_plugins("credits")[name], kind="credit", key="train.credit.type")
    with name_credit(name):
        credit: Credit = make(scale)
    return credit


@contextmanager
def name_credit(name: str) -> Iterator[None]:
    """Raise whatever a credit raises as a `ConfigError` that names it."""
    try:
        with contain_exit():
            yield
    except ViewboxError:
        raise
    except Exception as error:
        problem = describe_error(unwrap(error), MAX_REASON)
        raise ConfigError(f"train.credit = {name}: raised {problem}", key="train.credit") from error


def spread(advantages: torch.Tensor, episodes: Sequence[EpisodeTokens], width: int) -> torch.Tensor:
    """Return advantages (B, 1 or replies) of B episodes as TRL's loss reads them: (B,) for one an episode, else
    (B, width), each reply's on its tokens.

    >>> tokens = EpisodeTokens((9,), (1, 2, 3, 4), (1, 1, 0, 1), (0.0,) * 4, replies=(2, 1))
    >>> spread(torch.tensor([[1.0, 2.0]]), [tokens], width=5)
    tensor([[1., 1., 0., 2., 0.]])
    """
    if advantages.shape[1] == 1:
        return advantages[:, 0]
    result = advantages.new_zeros(len(episodes), width)
    for row, row_advantages, tokens in zip(result, advantages, episodes, strict=True):
        sampled = [place for place, bit in enumerate(tokens.mask) if bit]
        row[sampled] = row_advantages[[reply for reply, count in enumerate(tokens.replies) for _ in range(count)]]
    return result
