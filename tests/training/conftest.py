"""Fixtures with tiny models, and environments whose play is known."""

import pytest

from tests.support.model_fixtures import *  # noqa: F403
from viewbox.envs.digits import viewer
from viewbox.envs.digits.canvas import LABELS
from viewbox.records import Reply


@pytest.fixture(scope="session")
def looking(strips):
    """Environments whose play is known while every token is the policy's own: see `Looking`."""

    class Looking(type(strips)):
        """Reads whatever the policy says as a look, `looks(seed)` times, and then as an answer, right or wrong."""

        at_most: int = 2

        async def step(self, state, reply_):
            if state.turn < state.seed % (self.at_most + 1):
                said = viewer.write_zoom(self, 2, 0.3, 0.6)
            else:
                said = viewer.write_answer(self, state.task, LABELS[0] if state.seed % 2 else None)
            return await super().step(state, Reply(said))

    def make(**settings):
        return Looking(**{"max_turns": 4, "tools": ("zoom",)} | settings)

    return make
