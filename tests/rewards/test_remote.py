"""What rewards that ask somebody else declare is found wherever they stand."""

from dataclasses import dataclass, field

from tests.support.tables import each
from viewbox.rewards import CombinedReward, ExactMatchReward
from viewbox.rewards.declare import AnswerFunction, EpisodeFunction
from viewbox.rewards.remote import count_threads, is_blocking, take_counts


@dataclass
class Asks:
    remote: str | None = "https://judge.example/v1"
    concurrency: int = 5
    name: str = "asks"
    blocking: bool = True
    counted: dict = field(default_factory=dict)

    def __call__(self, answer, reference):
        return 1.0

    def of_episode(self, episode):
        return 1.0

    def take_counts(self):
        counted, self.counted = self.counted, {}
        return counted


def inside(reward):
    return CombinedReward({"inner": (CombinedReward({"asks": (reward, 1.0)}), 0.5), "label": (ExactMatchReward(), 0.5)})


PLACES = {
    "alone": lambda one: one,
    "combined": inside,
    "renamed": lambda one: inside(AnswerFunction(one, "other")),
    "a method": lambda one: inside(EpisodeFunction(one.of_episode, "other")),
}


@each("place", list(PLACES))
def test_a_blocking_reward_is_found(place):
    assert is_blocking(PLACES[place](Asks()))
    assert count_threads(PLACES[place](Asks())) == 5


def test_pure_rewards_are_not_blocking():
    assert not is_blocking(inside(lambda answer, reference: 1.0))
    assert count_threads(inside(lambda answer, reference: 1.0)) == 1


def test_no_reward_is_not_blocking():
    assert count_threads(None) == 1
    assert take_counts(None) == {}


def test_counts_are_summed_and_told_once():
    reward = CombinedReward(
        {"a": (Asks(counted={"judge/calls": 2}), 0.5), "b": (Asks(counted={"judge/calls": 3}), 0.5)}
    )
    assert take_counts(reward) == {"judge/calls": 5.0}
    assert take_counts(reward) == {}
