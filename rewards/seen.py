"""A reward for looking: on what the pictures showed, not on how many calls were made."""

from dataclasses import replace
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from ..records import Episode
from .declare import NonNegative, RewardName, register_reward
from .looks import Looks, Target, average, read_looks


@register_reward("seen")
class SeenReward:
    """How well an episode looked: max(0, seen - examined - `cost` · (calls - 1)).

    `seen` is the share of the right answer's boxes that closer looks showed well, and `examined` the share of the
    pictures that they showed as closely. So before it is cut off at 0, the difference is 0 on average for looks that
    know nothing of the target, however many they are: the whole picture again gives 1 - 1, and 5 of 16 tiles 5/16 -
    5/16 (as J = sensitivity + specificity - 1; Youden 1950). Every call after the first costs, whether it ran or was
    refused, and however many stand in one reply.

    A look counts if it shows more of its place than the pictures at the start, and the target in it is as large and as
    clear as the environment's `seen_at` asks for; `scale` replaces its scale. The reward does not apply without a
    target, or if the pictures at the start already show it well. Without an answer it is 0. It does not measure whether
    the answer is right. Each reply earns by what it moves the score (`of_turns`), which keeps the optimum (Ng et al.
    1999).

    Range: [0, 1], or `None`.

    >>> from viewbox.envs.digits import Digits
    >>> env = Digits()
    >>> look = env.oracle(env.tasks[0])[0]
    >>> looked = env.play(env.tasks[0], lambda messages: look if len(messages) < 3 else env.write_answer(env.tasks[0]))
    >>> SeenReward().of_episode(looked)  # it is seen whole in a sixteenth of the picture
    0.9375
    >>> SeenReward().of_turns(looked)
    [0.9375, 0.0]
    """

    scale: Annotated[
        float | None, Field(gt=0, description="pixels shown for one of the image; default: the environment's `seen_at`")
    ] = None
    cost: Annotated[NonNegative, Field(description="of each call after the first")] = 0.1
    name: RewardName = "seen"

    def of_episode(self, episode: Episode) -> float | None:
        return self._score(episode)[0]

    def explain_episode(self, episode: Episode) -> str:
        return self._score(episode)[1]

    def of_turns(self, episode: Episode) -> list[float]:
        """Return by how much each reply moved the score: with its pictures and its calls, but without an answer."""
        looks, calls, scores = read_looks(episode, self.scale), 0, [0.0]
        made = [len(turn.tool_calls) for turn in episode.turns if turn.role == "assistant"]
        for reply, count in enumerate(made, 1):
            calls += count
            scores.append(self._measure(looks, calls, reply)[0])
        return [after - before for before, after in pairwise(scores)]

    def _score(self, episode: Episode) -> tuple[float | None, str]:
        looks = read_looks(episode, self.scale)
        if not looks.targets:
            return None, looks.why
        if all(target.first == 0 for target in looks.targets):
            return None, "the pictures at the start already show it well"
        if episode.answer is None:
            return 0.0, "there is no answer"
        calls = episode.tool_call_count
        score, seen, examined = self._measure(looks, calls, episode.num_turns)
        return score, f"{seen:.2f} of it was seen, with {examined:.2f} of the picture, in {calls} calls"

    def _measure(self, found: Looks, calls: int, reply: int) -> tuple[float, float, float]:
        """Return the score after so many replies, and what it is made of: `seen` and `examined`."""
        closer = tuple(
            Target(one.region, [sight for sight in one.sights if sight.look.is_closer and sight.look.reply <= reply])
            for one in found.targets
        )
        seen, examined = average([one.covered for one in closer]), replace(found, targets=closer).examined
        return max(0.0, seen - examined - self.cost * max(0, calls - 1)), seen, examined
