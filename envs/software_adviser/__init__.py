"""The imaging-software adviser: tools of a catalogue recommended for a task in a user's words and a preview image.

`catalogue.jsonl` is the shipped catalogue, one tool a line with the source of each fact; `catalogue.py` reads it or a
user's own.
"""

from .catalogue import SHIPPED, Catalogue, check_catalogue, read_catalogue
from .software import FactSource, SoftwareTool

__all__ = ["SHIPPED", "Catalogue", "FactSource", "SoftwareTool", "check_catalogue", "read_catalogue"]
