"""Readers whose reliability by kind of film is known: for runs that measure whom a policy believes when they disagree.

    env: {name: chest_xray, questions: [opinion], trust_bonus: 0.3, specialists: {
      reader_a: {kind: function, function: "viewbox.envs.chest_xray.opinions:reader_a"}, …}}

A film with a line, a pacemaker or electrodes was taken at the bedside, any other one standing; half are of each kind.
The policy is told neither the rates nor that the kind matters: it can see the device. What a reader says depends on the
case alone, so that asking twice brings nothing new. `reader_c` is a decoy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...records import Episode
from ...tools import Hidden, Picture, ToolOutput
from ...utils.values import to_text

RATES: Mapping[str, Mapping[str, float]] = {  # of right opinions
    "reader_a": {"standing": 0.95, "bedside": 0.6},
    "reader_b": {"standing": 0.6, "bedside": 0.95},
    "reader_c": {"standing": 0.5, "bedside": 0.5},
}


@dataclass(frozen=True)
class Reader:
    """A reader by name."""

    name: str

    def __call__(self, image: Picture, case: Hidden[dict[str, Any]]) -> ToolOutput:
        """Ask a reader whether a film shows what the question is about."""
        rng = np.random.default_rng([case["seed"], 31, list(RATES).index(self.name)])
        is_right = rng.random() < RATES[self.name][case["film"]]
        says = case["answer"] if is_right else {"yes": "no", "no": "yes"}[case["answer"]]
        return ToolOutput(f"I would say {says}.", {"says": says}, tells_facts=False)


reader_a, reader_b, reader_c = map(Reader, RATES)


class TrustReward:
    """1 if the reader that is best at this kind of film was asked, and is believed wherever another one disagrees.

    A right answer counts as one that believes it, so that no policy loses by seeing what the best reader has missed.
    """

    name = "trust"

    def of_episode(self, episode: Episode) -> float:
        film = str(episode.task.metadata.get("film", ""))
        results = (result for turn in episode.turns for result in turn.tool_results)
        said = {one.tool_name: str(one.facts["says"]) for one in results if one.success and "says" in one.facts}
        best = max(RATES, key=lambda name: RATES[name].get(film, 0.0))
        answer = episode.answer or {}
        given = to_text(answer.get("answer", answer.get("text"))).strip(" .").lower()
        accepted = (episode.task.reference["answer"], said.get(best))
        return float(best in said and given in {str(one).lower() for one in accepted if one is not None})

    def explain_episode(self, episode: Episode) -> str:
        """Return why the episode got its score, in a sentence."""
        return f"film: {episode.task.metadata.get('film')}; the right reader believed: {bool(self.of_episode(episode))}"
