"""The third outcome of a score: the reference cannot be met."""

from viewbox.errors import Unmeasurable


def measure(reward, answer, reference):
    """Return the score, or None if the reward says that no answer can meet the reference."""
    try:
        return reward(answer, reference)
    except Unmeasurable:
        return None
