"""Lists the files of viewbox that are copied into a published environment, and the packages it depends on.

The folders that play and score are copied whole (`ROOMS`), with the files that these need (`FILES`). The dependencies
are what the copied files and the author's files import.
"""

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ..errors import ConfigError
from ..version import __version__

# How a package gets viewbox. The maintainers of viewbox set DEFAULT to "dependency" in the release that an index holds.
Provision = Literal["copy", "dependency"]
PROVISIONS: tuple[Provision, ...] = ("copy", "dependency")
DEFAULT: Provision = "copy"

ROOT = Path(__file__).parents[1]
ROOMS = ("utils", "network", "configs", "images", "rewards", "tools", "core", "envs")
FILES = (
    *("LICENSE", "__init__.py", "py.typed", "errors.py", "plugins.py", "records.py", "version.py"),
    *("assets/__init__.py", "integrations/__init__.py", "integrations/session.py", "integrations/verifiers.py"),
)
LEFT_OUT = ("envs/from_config.py", "configs/schema.py", "configs/train_sections.py")  # of a run's config
SUFFIXES = (".py", ".j2")  # code and templates
DATA_SUFFIXES = (".jsonl", ".txt", ".yaml", ".npz")  # only files that the code beside them names
VERIFIERS = "verifiers>=0.4,<0.5"  # without a version, it would be published for the old interface
DATASETS = "datasets>=5"
MCP = "mcp>=2,<3"  # as in the extra
MODELS = ("torch>=2.8", "torchvision>=0.23", "transformers>=5.23,<6")  # bring safetensors and huggingface-hub
DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "yaml": "pyyaml",
    "pydantic_core": "pydantic",
}


@cache
def list_library_files() -> tuple[Path, ...]:
    """Return the files of viewbox to copy, relative to its root, sorted."""
    found = [path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*") if _is_copied(path)]
    return tuple(sorted({*found, *map(Path, FILES)} - set(map(Path, LEFT_OUT))))


@cache
def list_library_modules(files: tuple[Path, ...]) -> set[str]:
    """Return the top-level modules that files of viewbox import, without the standard library."""
    return list_third_party(ROOT / path for path in files if path.suffix == ".py")


def list_dependencies(
    author: Iterable[Path],
    *,
    hub: bool = False,
    mcp: bool = False,
    models: bool = False,
    modules: Collection[str] = (),
    viewbox: Provision = DEFAULT,
) -> list[str]:
    """Return the requirements of the published package.

    For packages that viewbox requires, its own version ranges hold; any other package that the author's files import is
    required at least at the installed version.

    Args:
        author: the author's Python files.
        hub: whether the tasks are those of a hub dataset.
        mcp: whether tools of an MCP server are offered.
        models: whether a tool runs a model.
        modules: the top-level modules that the settings name.
        viewbox: whether it travels as a copy, whose requirements are then the package's own, or is one of them.

    Raises:
        ConfigError: the author's files import, or the settings name, a module that belongs to no installed package.
    """
    core = [line.split(";")[0].strip() for line in requires("viewbox") or () if "extra ==" not in line]
    stated = {get_distribution(re.split(r"[^\w.-]", line)[0]): line for line in core} | {"verifiers": VERIFIERS}
    if viewbox == "copy":
        used = map(get_distribution, list_library_modules(list_library_files()))
        needed = {stated[name] for name in used if name in stated}
    else:
        needed = {require_viewbox(__version__)}
    needed |= {*[DATASETS] * hub, *[MCP] * mcp, *MODELS[: len(MODELS) * models]}
    author = list(author)
    own = {path.stem for path in author} | {path.parent.name for path in author}
    installed = packages_distributions() if author or modules else {}
    for module in sorted((list_third_party(author) | set(modules)) - own - set(sys.stdlib_module_names)):
        name = get_distribution(module)
        if name in stated:
            needed.add(stated[name])
        elif module in installed:
            name = installed[module][0]
            needed.add(f"{name}>={version(name)}")
        elif find_spec(module) is not None:
            user = "a specialist names" if module in modules else f"{author[0].name} imports"
            raise ConfigError(
                f"{user} {module!r}, which is not part of an installed package and would be missing; "
                "allowed: both in one package, published as package.module:Class"
            )
    return [VERIFIERS, *sorted(needed - {VERIFIERS})]


def require_viewbox(version: str) -> str:
    """Return the requirement of a package that depends on viewbox: this version or a later patch, which scores the
    same.

    >>> require_viewbox("0.3.1")
    'viewbox>=0.3.1,<0.4'
    """
    major, minor = version.split(".")[:2]
    return f"viewbox>={version},<{major}.{int(minor) + 1}"


def list_third_party(files: Iterable[Path]) -> set[str]:
    """Return the top-level modules that Python files import, without viewbox and the standard library."""
    modules = {name.split(".")[0] for path in files for name in list_imports(path)}
    return modules - set(sys.stdlib_module_names) - {"viewbox"}


def get_distribution(module: str) -> str:
    """Return the name of the package on the index that provides a top-level module."""
    return DISTRIBUTIONS.get(module, module.lower().replace("_", "-"))


def _is_copied(path: Path) -> bool:
    if not path.is_file() or path.is_symlink():
        return False
    return path.suffix in SUFFIXES or (
        path.suffix in DATA_SUFFIXES
        and any(f'"{path.name}"' in code.read_text(encoding="utf-8") for code in path.parent.rglob("*.py"))
    )


def list_imports(path: Path, *, caught: bool = True) -> Iterator[str]:
    """Yield the modules that a file imports by their full names, also inside functions, but not for type checking only.

    Args:
        path: the file.
        caught: whether those count whose failure is caught.
    """
    waiting: list[ast.AST] = [ast.parse(path.read_bytes())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in vars(node.test).values():  # alone, or of `typing`
            waiting += node.orelse
            continue
        if isinstance(node, ast.Try) and not caught and any("ImportError" in ast.unparse(one) for one in node.handlers):
            waiting += [*node.handlers, *node.orelse, *node.finalbody]
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
