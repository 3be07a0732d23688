"""A reward that applies only to the tasks whose reference has a gold."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .fields import get_field


@dataclass(frozen=True)
class IfGold:
    """Another reward, or None if the reference lacks `field`. A combined reward then counts the other components.

    >>> from viewbox.rewards import TokenF1Reward
    >>> reward = IfGold(TokenF1Reward("impression"), "impression")
    >>> reward({"impression": "normal"}, {}) is None, reward({"impression": "normal"}, {"impression": "normal"})
    (True, 1.0)
    """

    reward: Callable[[Mapping[str, Any] | None, Mapping[str, Any]], float | None]
    field: str

    @property
    def name(self) -> str:
        return str(getattr(self.reward, "name", "if_gold"))

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        return None if get_field(reference, self.field) is None else self.reward(answer, reference)

    def explain(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> str:
        """Why the answer got its score, in a sentence."""
        if get_field(reference, self.field) is None:
            return f"the task has no {self.field}"
        explain = getattr(self.reward, "explain", None)
        return str(explain(answer, reference)) if explain else ""
