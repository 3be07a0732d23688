"""The dataset of `pubmedqa`, whose abstracts the config leaves out."""

from tests.support.datasets.pubmedqa import build

__all__ = ["build"]
