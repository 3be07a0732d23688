"""An environment and a reward for whole runs of a random policy: pictures in later turns, rewards that differ."""

from viewbox.envs.digits import Digits, viewer
from viewbox.records import Reply


class Looks(Digits):
    """Reads whatever the policy says as a zoom, `seed % 3` times, and then as an answer."""

    name = "looks"

    async def step(self, state, reply):
        look = state.turn < state.seed % 3
        text = viewer.write_zoom(self, 2, 0.3, 0.6) if look else viewer.write_answer(self, state.task, None)
        return await super().step(state, Reply(text))


def add_up(episode):
    """A number of the tokens that were sampled."""
    sampled = zip(episode.tokens.completion_ids, episode.tokens.mask, strict=True)
    return sum(token for token, own in sampled if own) % 7 / 7
