"""Questions about a picture whose answer stands in an invented literature."""

from .env import LiteratureVQA

__all__ = ["LiteratureVQA"]
