"""Docstrings that are data: what a model reads of a tool, and a person of a command. `python -OO` takes them out of the
code; then they are read from its source."""

import ast
import inspect
import sys
import textwrap
from typing import Any

from ..errors import ConfigError


def check_kept(library: str) -> None:
    """Raise `ConfigError` if Python has taken out the docstrings that a library reads."""
    if sys.flags.optimize > 1:
        raise ConfigError(f"python -OO takes out the docstrings that {library} reads; allowed: python, or python -O")


def read_docstring(thing: Any) -> str:
    """Return the docstring of a module, of a class, without those above it, or of a function; "" if there is none.
    Raise `TypeError` if Python has taken that of a function out, and its source cannot be read."""
    is_class = inspect.isclass(thing)
    written = inspect.cleandoc((vars(thing).get("__doc__") if is_class else inspect.getdoc(thing)) or "")
    if sys.flags.optimize < 2 or (not is_class and thing.__doc__):
        return written
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(thing))))
    except (TypeError, SyntaxError):  # it is not Python, or a lambda
        return ""
    except OSError as error:
        if not inspect.isfunction(thing):
            return ""
        problem = "python -OO has taken its docstring out, and its source cannot be read"
        raise TypeError(f"{thing.__qualname__}: {problem}; allowed: a file of source, or Python without -OO") from error
    node = tree if inspect.ismodule(thing) else tree.body[0]
    docstring = ast.get_docstring(node) if isinstance(node, _DOCUMENTED) else None
    return docstring or ("" if is_class else written)


def restore_docstring(cls: object) -> None:
    """Give a class its own docstring again, of which pydantic makes the description of a schema."""
    if sys.flags.optimize > 1 and isinstance(cls, type) and vars(cls).get("__doc__") is None:
        cls.__doc__ = read_docstring(cls) or None


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
