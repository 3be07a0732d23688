"""The viewer's tools, one family a file; importing this package registers them all."""

from viewbox.envs.tools import analysis, filters, geometry, intensity, symmetry, volumes, windows
from viewbox.envs.tools.applying import Applied, apply, chain, located
from viewbox.envs.tools.registry import TOOLS, Box, Hidden, Outcome, Point, Range, Tool, call, get, times, tool

__all__ = [
    "TOOLS",
    "Applied",
    "Box",
    "Hidden",
    "Outcome",
    "Point",
    "Range",
    "Tool",
    "analysis",
    "apply",
    "call",
    "chain",
    "filters",
    "geometry",
    "get",
    "intensity",
    "located",
    "symmetry",
    "times",
    "tool",
    "volumes",
    "windows",
]
