"""The built-in tools, and what an author needs to declare others.

`tool` registers a function, `Tool` describes one, `ToolOutput` is what it returns; `call_stateful` and `call_stateless`
run it, `apply_tool` runs it outside an episode. Importing this package registers the built-in tools.
"""

from .arguments import Box as Box
from .arguments import Hidden as Hidden
from .arguments import Picture as Picture
from .arguments import Point as Point
from .arguments import Range as Range
from .arguments import ViewFractions as ViewFractions
from .builtin import analysis as analysis
from .builtin import comparison as comparison
from .builtin import filters as filters
from .builtin import geometry as geometry
from .builtin import intensity as intensity
from .builtin import symmetry as symmetry
from .builtin import volumes as volumes
from .builtin import windows as windows
from .calling import ToolOutput as ToolOutput
from .calling import apply_tool as apply_tool
from .calling import apply_tools as apply_tools
from .calling import call_stateful as call_stateful
from .calling import call_stateless as call_stateless
from .calling import open_view as open_view
from .tool import TOOLS as TOOLS
from .tool import Tool as Tool
from .tool import collect_tools as collect_tools
from .tool import format_calls as format_calls
from .tool import get_tool as get_tool
from .tool import to_tool_names as to_tool_names
from .tool import tool as tool
