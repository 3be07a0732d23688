"""The imaging-software adviser: tools of a catalogue recommended for a task in a user's words and a preview image."""

from .catalogue import SHIPPED, Catalogue, FactSource, SoftwareTool, check_catalogue, read_catalogue

__all__ = ["SHIPPED", "Catalogue", "FactSource", "SoftwareTool", "check_catalogue", "read_catalogue"]
