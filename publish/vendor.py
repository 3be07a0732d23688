"""The part of viewbox that travels with a published environment, and what both need from elsewhere.

It is what plays and scores, without the rooms that train or call endpoints: `envs` and `rewards` with one adapter, and
the modules of the root that those import. What they import decides the dependencies.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions, requires, version
from importlib.util import find_spec
from pathlib import Path

import viewbox
from viewbox.errors import ConfigError

ROOT = Path(viewbox.__file__).parent
ROOMS = ("envs", "rewards")
ADAPTERS = Path("envs/adapters")  # each of them needs a library of its own: one comes along
VERIFIERS = "verifiers>=0.4,<0.5"  # a bare "verifiers" would be published as its old interface
DISTRIBUTIONS = {"PIL": "pillow", "cv2": "opencv-python-headless", "sklearn": "scikit-learn", "yaml": "pyyaml"}


def library() -> list[Path]:
    """The files of viewbox that come along, relative to its root."""
    chosen = [path for room in ROOMS for path in _files(ROOT / room) if _travels(path.relative_to(ROOT))]
    waiting = [path for path in chosen if path.suffix == ".py"]
    while waiting:  # a module of the root may import another
        for name in _imports(waiting.pop()):
            path = ROOT / f"{name.split('.')[1]}.py" if name.startswith("viewbox.") else ROOT
            if path.is_file() and path not in chosen:
                chosen.append(path)
                waiting.append(path)
    chosen += [path for name in ("__init__.py", "py.typed", "LICENSE") if (path := ROOT / name).is_file()]
    return sorted(path.relative_to(ROOT) for path in chosen)


def dependencies(author: Iterable[Path]) -> list[str]:
    """Requirements of the published package: viewbox's own as it states them, the author's at what is installed."""
    stated = _stated()
    used = _third_party(ROOT / path for path in library() if path.suffix == ".py")
    needed = {stated[name] for name in map(_distribution, used) if name in stated}
    author = list(author)
    own = {path.stem for path in author} | {path.parent.name for path in author}
    installed = packages_distributions() if author else {}
    for module in sorted(_third_party(author) - own):
        name = _distribution(module)
        if name in stated:
            needed.add(stated[name])
        elif module in installed:
            name = installed[module][0]
            needed.add(f"{name}>={version(name)}")
        elif find_spec(module) is not None:
            raise ConfigError(
                f"{author[0].name} imports {module!r}, which is not of an installed package and would be missing; "
                "put both in a package and publish package.module:Class"
            )
    return [VERIFIERS, *sorted(needed - {VERIFIERS})]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def _travels(path: Path) -> bool:
    return path.parent != ADAPTERS or path.stem == "__init__" or path.stem.startswith("verifiers")


def _imports(path: Path) -> Iterator[str]:
    """Every module a file imports by its full name, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "viewbox")


def _third_party(files: Iterable[Path]) -> set[str]:
    found = {name.split(".")[0] for path in files for name in _imports(path)}
    return found - set(sys.stdlib_module_names) - {"viewbox"}


def _distribution(module: str) -> str:
    return DISTRIBUTIONS.get(module, module.lower().replace("_", "-"))


def _stated() -> dict[str, str]:
    """What an installation of viewbox without extras needs: name → requirement."""
    core = [line.split(";")[0].strip() for line in requires("viewbox") or () if "extra ==" not in line]
    return {re.split(r"[^\w.-]", line)[0].lower().replace("_", "-"): line for line in core} | {"verifiers": VERIFIERS}
