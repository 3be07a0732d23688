"""Boxes to find in images, from any dataset."""

from .env import Grounding

__all__ = ["Grounding"]
