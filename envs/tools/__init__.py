"""The viewer's tools, one family a file; importing this package registers them all. Others are made by an author."""

from viewbox.envs.tools.apply import Applied, apply, chain, located
from viewbox.envs.tools.arguments import Stated
from viewbox.envs.tools.builtin import analysis, filters, geometry, intensity, symmetry, volumes, windows
from viewbox.envs.tools.calling import Found, answer
from viewbox.envs.tools.tool import TOOLS, Box, Hidden, Outcome, Picture, Point, Range, Tool, call, get, times, tool

__all__ = [
    "TOOLS",
    "Applied",
    "Box",
    "Found",
    "Hidden",
    "Outcome",
    "Picture",
    "Point",
    "Range",
    "Stated",
    "Tool",
    "analysis",
    "answer",
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
