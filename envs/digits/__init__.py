"""The environment of the quickstart."""

from viewbox.envs.digits.env import DigitAnswer, Digits

__all__ = ["DigitAnswer", "Digits"]
