"""Questions about images, or about text alone, from any dataset."""

from viewbox.envs.vqa.env import VQA

__all__ = ["VQA"]
