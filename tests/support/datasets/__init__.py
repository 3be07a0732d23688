"""Small local datasets with the features of those on the hub: names, nesting, form of boxes, values of labels.

Each file has one function `build(folder)`, which writes the dataset there as the hub stores it, and returns the path
that `viewbox data check PRESET --path …` takes. `docs/datasets/` names the source of each feature.
"""

from importlib import import_module
from pathlib import Path

NAMES = (
    "vqa_rad", "slake", "gemex_thinkvg", "nova", "pubmedqa", "pubmedqa_search", "agentclinic_nejm", "vstar",
    "chartqa", "chestagentbench", "rexvqa",
)  # fmt: skip


def build(name: str, folder: Path) -> Path:
    """Writes the dataset of a preset into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return import_module(f"{__name__}.{name}").build(folder)
