"""Boxes to find in images, from any dataset."""

from viewbox.envs.grounding.env import Grounding

__all__ = ["Grounding"]
