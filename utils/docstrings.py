"""Docstrings that are data: what a model reads of a tool, and a person of a command."""

import inspect
import sys
from typing import Any

from ..errors import ConfigError


def read_docstring(thing: Any) -> str:
    """Return the docstring of a module, of a class, without those above it, or of a function; "" if there is none.

    Raises:
        ConfigError: Python takes all docstrings out.
    """
    if sys.flags.optimize > 1:
        raise ConfigError("python -OO takes out the docstrings that models read; allowed: python, or python -O")
    own = vars(thing).get("__doc__") if inspect.isclass(thing) else inspect.getdoc(thing)
    return inspect.cleandoc(own or "")
