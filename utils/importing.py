"""The one loader of an object by path: `package.module:Name` or `path/to/file.py:Name`.

Environments, rewards, tools and commands all take these two forms. What goes wrong is a `ConfigError` before anything
has run: which path was given, which forms or names are allowed, and the line of the author's code that failed.
"""

import hashlib
import sys
import traceback
from importlib import import_module, util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ..errors import ConfigError, describe_unknown
from .concurrency import contain_exit, unwrap
from .files import expand_path

FORMS = "package.module:Name or path/to/file.py:Name"


def load_object(path: str, *, kind: str = "object", key: str | None = None) -> object:
    """Import the object at `path`.

    Args:
        path: `package.module:Name` or `path/to/file.py:Name`; `Name` may be dotted (`Class.method`). Relative paths
            start in the current folder, where own modules are searched, too, after everything that is installed.
        kind: what is loaded, for the error message: "reward", "environment".
        key: the setting that names it, for the error.

    Raises:
        ConfigError: another form, a file or module that is missing or fails, or a name it does not define.

    >>> load_object("math:sqrt")(9)
    3.0
    >>> load_object("json:lods", kind="function")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: function 'json:lods': unknown name 'lods'; allowed: JSONDecodeError, JSONDecoder, \
JSONEncoder, detect_encoding, dump, dumps, load, loads (did you mean 'loads'?)
    """
    where = f"{kind} {path!r}"
    module_name, _, name = expand_path(path, where=f"{where}: ", key=key).rpartition(":")
    if not module_name or not name:
        raise ConfigError(f"{where}; allowed: {FORMS}", key=key)
    file = Path.cwd() / module_name if module_name.endswith(".py") else None
    if file and not file.is_file():
        raise ConfigError(f"{where}: {module_name}: no such file; allowed: {FORMS}", key=key)
    add_to_search_path()
    try:
        with contain_exit():
            module = _load_file(file.resolve()) if file else import_module(module_name)
    except Exception as error:  # the author's module may fail in any way
        text = _explain_failure(module_name, unwrap(error))
        if file and (file.parent / "__init__.py").is_file():
            text += "; the file belongs to a package: name it as package.module:Name"
        raise ConfigError(f"{where}: {text}", key=key) from error
    value: Any = module
    for attribute in name.split("."):
        if not hasattr(value, attribute):
            held = getattr(value, "__dict__", {})  # not `getattr` for each: some attributes import what they name
            public = [one for one in dir(value) if one[0] != "_" and not isinstance(held.get(one), ModuleType)]
            raise ConfigError(f"{where}: {describe_unknown('name', attribute, public)}", key=key)
        value = getattr(value, attribute)
    return value


def add_to_search_path(folder: Path | None = None) -> None:
    """Make modules in `folder` (default: the current one) importable, after everything that is installed."""
    entry = str(folder or Path.cwd())
    if entry not in sys.path:
        sys.path.append(entry)


class _Compiler(SourceFileLoader):
    """Compiles a file each time: its bytecode, found by second and size, may be that of an older text."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _load_file(path: Path) -> ModuleType:
    """Return the module in a file. One file is one module, however often it is loaded."""
    add_to_search_path(path.parent)  # a file may import its neighbors, as a script may
    name = f"viewbox_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = util.spec_from_file_location(name, path, loader=_Compiler(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and type hints look their module up while it is executed
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _explain_failure(name: str, error: BaseException) -> str:
    """Return why a module cannot be imported, with the line of it that failed."""
    if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
        return f"{error}; allowed: a module that `python -c 'import {name}'` finds, or path/to/file.py:Name"
    if isinstance(error, SyntaxError):
        return f"{name} cannot be imported: {type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    line = f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""
    return f"{name} cannot be imported: {type(error).__name__}: {error}{line}"


def import_hub(option: str) -> Any:
    """Return the client of the Hugging Face hub; raise `ConfigError` if the option needs it in vain."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        key = option.partition(" ")[0]
        raise ConfigError(f"--{option} needs huggingface_hub: pip install 'viewbox[hub]'", key=key) from error
    return huggingface_hub
