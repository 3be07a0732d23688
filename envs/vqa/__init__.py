"""Questions about images, or about text alone, from any dataset."""

from .env import VQA

__all__ = ["VQA"]
