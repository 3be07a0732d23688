"""An environment for whole runs: a random policy is never right, so it reads sense into whatever one says."""

from viewbox.envs.digits import Digits, viewer
from viewbox.envs.digits.canvas import LABELS
from viewbox.records import Reply


class Guesses(Digits):
    """The first reply is read as a look; the length of the second chooses one of two labels."""

    name = "guesses"

    async def step(self, state, reply_):
        if state.turn == 0:
            return await super().step(state, Reply(viewer.write_gold_look(self, state.task)))
        label = state.task.reference["label"] if len(reply_.text) % 2 else LABELS[0]
        return await super().step(state, Reply(viewer.write_answer(self, state.task, label)))
