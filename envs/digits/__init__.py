"""The environment of the quickstart."""

from .env import DigitAnswer, Digits

__all__ = ["DigitAnswer", "Digits"]
