"""A language model as a reward, over any OpenAI-compatible endpoint: opt-in, cached, and never the end of a run.

A judge is for what no formula reads, such as whether a report says the same as another; where one can, use that: it is
exact, free, and nothing to be talked into. It lives here and not in `rewards` because it does I/O; `rewards/spec.py`
finds it by name. What a judge cannot decide is `None`, so that the other components keep their weights, and is counted.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar

from viewbox.errors import ConfigError
from viewbox.rewards.base import finite
from viewbox.rollouts.endpoint.http import is_loopback
from viewbox.rollouts.judge.client import Asker
from viewbox.rollouts.judge.prompt import RUBRIC, Verdict, messages, read, text_at


@dataclass(frozen=True)
class JudgeReward:
    """The score that a language model gives the answer by a rubric: the `score` of its JSON reply, unchanged.

    LLM-as-a-judge with a reference (Zheng et al. 2023, *Judging LLM-as-a-Judge*, section 3.4). The judge sees the
    `rubric`, the reference's field (unless `show_reference` is false) and the answer's field, or the whole of either
    where `field` is None, as text of at most `max_characters` each, between marks that the answer cannot forge; no
    image. It is asked at temperature 0. A missing or empty answer scores 0 unasked; a missing reference, a judge that
    cannot be reached within `time_limit` seconds or `attempts` attempts, and a reply that is not {"score": 0..1, …}
    give `None`.

    Replies are kept by the hash of everything that was sent, in the folder `cache` (None: in memory), so scoring
    again asks nothing. At most `concurrency` requests are in flight. The key is read from the environment variable
    `api_key_env` and kept nowhere else. `extra` is merged into every request; a value of None takes a field out.

    Range: [0, 1], or `None`.

    >>> judge = JudgeReward("report", endpoint="http://127.0.0.1:8000/v1", model="qwen3-8b")
    >>> judge({"report": " "}, {"report": "a nodule"})  # nothing to ask about
    0.0
    >>> judge.blocking, judge.remote
    (True, None)
    """

    field: str | None = None
    reference_field: str | None = None
    _: KW_ONLY
    endpoint: str
    model: str
    rubric: str = RUBRIC
    show_reference: bool = True
    max_characters: int = 8000
    api_key_env: str | None = None
    cache: str | Path | None = None
    concurrency: int = 8
    attempts: int = 6
    time_limit: float = 60.0
    max_tokens: int = 512
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    name: str = "judge"
    _asker: Asker = dataclasses.field(init=False, repr=False, compare=False)

    blocking: ClassVar[bool] = True  # it waits for a network: not on an event loop, please

    def __post_init__(self) -> None:
        for name in ("max_characters", "concurrency", "attempts", "max_tokens"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"judge: {name} is {value!r}; allowed: a whole number >= 1")
        if (finite(self.time_limit) or 0) <= 0:
            raise ConfigError(f"judge: time_limit is {self.time_limit!r}; allowed: a number > 0")
        asker = Asker(
            self.endpoint,
            self.model,
            api_key_env=self.api_key_env,
            cache=self.cache,
            concurrency=self.concurrency,
            attempts=self.attempts,
            time_limit=self.time_limit,
            max_tokens=self.max_tokens,
            extra=self.extra,
        )
        object.__setattr__(self, "_asker", asker)

    @property
    def remote(self) -> str | None:
        """Where answers are sent; None where that is this machine."""
        return None if is_loopback(self.endpoint) else self.endpoint

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        return self.verdict(answer, reference).score

    def explain(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> str:
        """Why it scored so, in the judge's words."""
        return self.verdict(answer, reference).words

    def verdict(
        self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any], question: str | None = None
    ) -> Verdict:
        """The score with the judge's reason. Never raises."""
        texts = {} if question is None else {"question": question}
        if self.show_reference:
            texts["reference"] = text_at(reference, self.reference_field or self.field)
            if not texts["reference"]:
                return Verdict(None, "the reference has nothing to judge by")
        texts["answer"] = text_at(answer, self.field)
        if not texts["answer"].strip():
            return Verdict(0.0, "there is no answer")
        reply = self._asker.ask(messages(self.rubric, texts, self.max_characters))
        if reply is None:
            return Verdict(None, "the judge could not be reached")
        verdict = read(reply)
        if verdict.score is None:
            self._asker.count("unreadable")
        return verdict

    def take_counts(self) -> dict[str, int]:
        """What happened since this was last asked, under the names that training and scoring show.

        `judge/calls`: judgments asked for; `judge/cached`: those that had been made before; `judge/unreachable` and
        `judge/unreadable`: those that are `None` because there was no reply, or no score in it.
        """
        return {f"judge/{name}": count for name, count in self._asker.take_counts().items()}


class QuestionJudgeReward(JudgeReward):
    """A `JudgeReward` that sees the question, too: it reads the episode, so it does not apply where there is none.

    >>> judge = QuestionJudgeReward("report", endpoint="http://127.0.0.1:8000/v1", model="qwen3-8b")
    >>> from viewbox.records import Episode, Task
    >>> judge.of_episode(Episode(Task("a", reference={"report": "a nodule"})))  # it has no answer
    0.0
    """

    def of_episode(self, episode: Any) -> float | None:
        return self._of(episode).score

    def explain_episode(self, episode: Any) -> str:
        """Why it scored so, in the judge's words."""
        return self._of(episode).words

    def _of(self, episode: Any) -> Verdict:
        question = next((turn.content for turn in episode.turns if turn.role == "user"), "")
        return self.verdict(episode.answer, episode.task.reference, question)


def judge(*, show_question: bool = False, **settings: Any) -> JudgeReward:
    """The reward of a YAML's `type: judge`.

    >>> type(judge(show_question=True, endpoint="http://127.0.0.1:8000/v1", model="m")).__name__
    'QuestionJudgeReward'
    """
    return (QuestionJudgeReward if show_question else JudgeReward)(**settings)
