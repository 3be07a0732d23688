"""An environment for whole runs of a random policy: it turns any reply into a valid one, so that rewards differ."""

from viewbox.envs.digits import Digits, viewer
from viewbox.envs.digits.canvas import LABELS
from viewbox.records import Reply


class Guesses(Digits):
    """The first reply counts as the gold look; the length of the second one chooses between two labels."""

    name = "guesses"

    async def step(self, state, reply):
        if state.turn == 0:
            return await super().step(state, Reply(viewer.write_gold_look(self, state.task)))
        label = state.task.reference["label"] if len(reply.text) % 2 else LABELS[0]
        return await super().step(state, Reply(viewer.write_answer(self, state.task, label)))
