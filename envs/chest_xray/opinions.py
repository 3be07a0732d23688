"""Readers whose reliability by kind of film is known: for runs that measure whom a policy believes when they disagree.

    env: {name: chest_xray, questions: [opinion], trust_bonus: 0.3, specialists: {
      reader_a: {kind: function, function: "viewbox.envs.chest_xray.opinions:reader_a"}, …}}

Half of the films show a pacemaker. The policy is told neither the rates nor that the pacemaker matters: it can see it.
What a reader says depends on the case alone, so that asking twice brings nothing new. `reader_c` is a decoy.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator as Rng

from ...core.messages import write_call
from ...errors import ToolError
from ...records import Episode, Task
from ...tools import Hidden, Picture, ToolOutput
from ...utils.values import to_text

RATES: Mapping[str, Mapping[str, float]] = {  # of right opinions
    "reader_a": {"plain": 0.95, "paced": 0.6},
    "reader_b": {"plain": 0.6, "paced": 0.95},
    "reader_c": {"plain": 0.5, "paced": 0.5},
}
SEEN: Mapping[str, str] = {"plain": "I see no pacemaker.", "paced": "I see a pacemaker."}


@dataclass(frozen=True)
class Reader:
    name: str

    def __call__(self, image: Picture, case: Hidden[dict[str, Any]]) -> ToolOutput:
        """Ask a reader whether a film shows what the question is about."""
        says = self.judge(case)
        return ToolOutput(f"I would say {says}.", {"says": says}, tells_facts=False)

    def judge(self, case: Mapping[str, Any]) -> str:
        """Return "yes" or "no", from the seed, the kind of film and the right answer of a case."""
        if case.get("film") not in SEEN:
            raise ToolError(f"{self.name} knows the films of the questions `opinion` only")
        rng = np.random.default_rng([case["seed"], 31, list(RATES).index(self.name)])
        is_right = rng.random() < RATES[self.name][case["film"]]
        return str(case["answer"] if is_right else {"yes": "no", "no": "yes"}[case["answer"]])


reader_a, reader_b, reader_c = READERS = tuple(map(Reader, RATES))


def describe_case(task: Task) -> dict[str, Any]:
    """Return what decides the words of a reader about a task."""
    return {"answer": task.reference.get("answer"), **{key: task.metadata.get(key) for key in ("seed", "film")}}


def ask_best_reader(task: Task, offered: Sequence[str]) -> tuple[str, ...]:
    """Return one call of the reader that knows this kind of film, after what the film shows in words."""
    film = task.metadata["film"]
    best = max((name for name in RATES if name in offered), key=lambda name: RATES[name][film], default=None)
    return () if best is None else (f"{SEEN[film]}\n{write_call(best, {'image': 'image_1'})}",)


def tell_and_repeat(task: Task, offered: Sequence[str], rng: Rng, guess: float, *, is_text: bool) -> list[str]:
    """Return replies that say what kind of film it is, ask a reader by lot, and repeat it; of a share `guess` no call.
    So a warm start learns to look, to ask and to repeat, and nothing of whom to believe."""
    film, write = task.metadata["film"], str if is_text else lambda said: json.dumps({"answer": said})
    reader = READERS[int(rng.integers(len(READERS)))]
    if reader.name not in offered or rng.random() < guess:
        said = write(("yes", "no")[int(rng.integers(2))])
        return [said if is_text else f"{SEEN[film]}\n{said}"]
    call = write_call(reader.name, {"image": "image_1"})
    return [f"{SEEN[film]}\n{call}", write(reader.judge(describe_case(task)))]


class TrustReward:
    """1 if the reader that is best at this kind of film was asked, and is believed wherever another one disagrees.
    A right answer counts as one that believes it, so that no policy loses by seeing what the best reader has missed. It
    does not apply to a task whose kind of film is not known."""

    name = "trust"

    def of_episode(self, episode: Episode) -> float | None:
        film = str(episode.task.metadata.get("film"))
        if film not in SEEN:
            return None
        results = (result for turn in episode.turns for result in turn.tool_results)
        said = {item.tool_name: str(item.facts["says"]) for item in results if item.success and "says" in item.facts}
        best = max(RATES, key=lambda name: RATES[name][film])
        answer = episode.answer or {}
        written = to_text(answer.get("answer", answer.get("text"))).strip(" .").lower()
        accepted = (episode.task.reference.get("answer"), said.get(best))
        return float(best in said and written in {str(item).lower() for item in accepted if item is not None})

    def explain_episode(self, episode: Episode) -> str:
        return f"film: {episode.task.metadata.get('film')}; the right reader believed: {bool(self.of_episode(episode))}"
