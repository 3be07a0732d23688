"""A reward taken apart on one answer: every component at any depth, what it gave, whether its gate was shut, and why.

`viewbox reward try` prints it (`cli/reward.py`); a notebook can ask for it, too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from viewbox.rewards.combined import CombinedReward, guarded, refusals, unmet
from viewbox.rewards.explain import explanations

Scores = Mapping[str, float | None]


@dataclass(frozen=True)
class Row:
    """One component: `name` is "outer.inner" inside another one; `weight` is its share of the reward around it.

    `score` is None where it does not apply; `closed` says that a gate kept it from being asked.
    """

    name: str
    weight: float
    score: float | None
    closed: bool
    why: str


@dataclass(frozen=True)
class Trial:
    """A reward on one answer. `total` is None where no component applies; `refused` is what components did wrong."""

    reward: str
    total: float | None
    rows: tuple[Row, ...]
    refused: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def tried(reward: Any, answer: Mapping[str, Any] | None, reference: Mapping[str, Any], episode: Any = None) -> Trial:
    """The reward taken apart on an answer; without `episode`, rewards that read one do not apply. Never raises.

    >>> from viewbox.rewards import ExactMatchReward, IoUReward, Part
    >>> box = Part(IoUReward("bbox"), 0.5, needs={"label": 1.0})
    >>> reward = CombinedReward({"label": (ExactMatchReward("label"), 0.5), "box": box})
    >>> trial = tried(reward, {"label": "six", "bbox": [0, 0, 1, 1]}, {"label": "seven", "bbox": [0, 0, 1, 1]})
    >>> trial.total, [(row.name, row.score, row.closed) for row in trial.rows]
    (0.0, [('label', 0.0, False), ('box', 0.0, True)])
    >>> trial.rows[1].why
    'counts 0: label is 0, needed: 1'
    """
    combined = guarded(reward)
    with refusals() as refused:
        total, scores = combined.score(answer, reference, episode)
    why = explanations(combined, answer, reference, episode)
    return Trial(combined.name, total, tuple(_rows(combined, scores, why)), tuple(refused))


def _rows(
    reward: CombinedReward, scores: Scores, why: Mapping[str, str], path: str = "", shut: str = ""
) -> Iterator[Row]:
    """The components in their order, each before those inside it; `shut` names the component around that is out."""
    beside = {name: scores[f"{path}{name}"] for name in reward.components}
    for name, part in reward.components.items():
        full = f"{path}{name}"
        closed = bool(shut) or unmet(part, beside) is not None
        words = f"not asked: {shut} is out" if shut else why.get(full, "")
        yield Row(full, part.weight, scores[full], closed, words)
        if isinstance(part.reward, CombinedReward):
            yield from _rows(part.reward, scores, why, f"{full}.", shut or (full if closed else ""))
