"""The built-in tools, and what an author needs to declare others.

`tool` registers a function, `Tool` describes one, `ToolOutput` is what it returns; `call_stateful` and `call_stateless`
run it, `apply_tool` runs it outside an episode. Importing this package registers the built-in tools.
"""

from .arguments import Box, Hidden, Picture, Point, Range, ViewFractions
from .builtin import analysis, comparison, filters, geometry, intensity, symmetry, volumes, windows
from .calling import ToolOutput, apply_tool, apply_tools, call_stateful, call_stateless, open_view
from .tool import TOOLS, Tool, collect_tools, format_calls, get_tool, to_tool_names, tool

__all__ = [
    "TOOLS", "Box", "Hidden", "Picture", "Point", "Range", "Tool", "ToolOutput", "ViewFractions", "analysis",
    "apply_tool", "apply_tools", "call_stateful", "call_stateless", "collect_tools", "comparison", "filters",
    "format_calls", "geometry", "get_tool", "intensity", "open_view", "symmetry", "to_tool_names", "tool",
    "volumes", "windows",
]  # fmt: skip
