"""Questions about a picture whose answer stands in an invented literature."""

from viewbox.envs.literature_vqa.env import LiteratureVQA

__all__ = ["LiteratureVQA"]
