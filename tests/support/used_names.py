"""Which names of libraries the package uses, and which of them the installed versions lack.

    python -P tests/support/used_names.py '{"doors": ["viewbox.integrations.gymnasium"]}'    # with viewbox on the path

Modules are imported, and each name that they take of a library must be there, also in functions that nobody calls here.
Not looked at: what is imported for type checkers only, what stands in a `try` that an ImportError or AttributeError
may end, and keyword arguments.
"""

import ast
import contextlib
import io
import json
import sys
import tomllib
from collections.abc import Collection, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb

MAY_FAIL = {"ImportError", "ModuleNotFoundError", "AttributeError"}


class Reader(ast.NodeVisitor):
    """What one file takes of others: `uses` holds (line, module, names), `needs` what is imported with it."""

    def __init__(self, name: str, path: Path) -> None:
        self.package = name if path.stem == "__init__" else name.rpartition(".")[0]
        self.bound: dict[str, tuple[str, ...]] = {}  # a name of this file: a module, and names in it
        self.uses: list[tuple[int, str, tuple[str, ...]]] = []
        self.needs = {self.package}
        self.inside = 0  # functions around the statement
        self.guarded = False  # in a `try` that may end with the name missing
        self.visit(ast.parse(path.read_text(encoding="utf-8")))

    def add(self, line: int, module: str, *names: str) -> None:
        if self.inside == 0:
            self.needs |= {module, ".".join((module, *names))}
        if not self.guarded and module.partition(".")[0] not in {
            *sys.stdlib_module_names,
            self.package.partition(".")[0],
        }:
            self.uses.append((line, module, names))

    def bind(self, name: str, *target: str) -> None:
        self.bound.pop(name, None)
        if not self.guarded:
            self.bound[name] = target

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self.add(node.lineno, alias.name)
            self.bind(alias.asname or top, alias.name if alias.asname else top)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        parts = self.package.split(".")
        above = parts[: len(parts) - node.level + 1] if node.level else []
        module = ".".join([*above, *filter(None, [node.module])])
        for alias in node.names:
            self.add(node.lineno, module, alias.name)
            self.bind(alias.asname or alias.name, module, alias.name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        root, names = node.value, [node.attr] if isinstance(node.ctx, ast.Load) else []
        while isinstance(root, ast.Attribute):
            root, names = root.value, [root.attr, *names]
        if isinstance(root, ast.Name) and root.id in self.bound:
            self.add(node.lineno, *self.bound[root.id], *names)
        self.visit(root)

    def visit_FunctionDef(self, node: ast.AST) -> None:
        around, parts = self.bound, list(ast.walk(node))
        local = {part.arg for part in parts if isinstance(part, ast.arg)}
        local |= {part.id for part in parts if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
        self.bound = {name: target for name, target in around.items() if name not in local}
        self.inside += 1
        self.generic_visit(node)
        self.bound, self.inside = around, self.inside - 1

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        for statement in (
            node.orelse if ast.unparse(node.test).endswith("TYPE_CHECKING") else ast.iter_child_nodes(node)
        ):
            self.visit(statement)

    def visit_Try(self, node: ast.Try) -> None:
        caught = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
        around, self.guarded = self.guarded, self.guarded or any(name in caught for name in MAY_FAIL)
        for statement in node.body:
            self.visit(statement)
        self.guarded = around
        for statement in [*node.handlers, *node.orelse, *node.finalbody]:
            self.visit(statement)

    def visit_Assign(self, node: ast.Assign) -> None:
        """`PRIVATE_NAMES = ("EnvClient._step_payload", …)`: names that no other line shows."""
        if ast.unparse(node.targets[0]) == "PRIVATE_NAMES" and isinstance(node.value, ast.Tuple):
            for value in ast.literal_eval(node.value):
                self.visit(ast.increment_lineno(ast.parse(value, mode="eval"), node.lineno - 1))
        self.generic_visit(node)


@cache
def find_missing(module: str, names: tuple[str, ...] = ()) -> str:
    """The part of a dotted name that is not there, or ""."""
    try:
        value = import_module(module)
        for name in names:
            module = f"{module}.{name}"
            value = getattr(value, name) if hasattr(value, name) else import_module(module)
    except Exception as error:
        return module if isinstance(error, ModuleNotFoundError) else f"{module}: {type(error).__name__}: {error}"
    return ""


def find_error(module: str, root: Path) -> str:
    """Import a module of ours; the place in the package where that fails, with the error, or ""."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # verl prints
            import_module(module)
    except (Exception, SystemExit) as error:
        frames = [frame for frame in extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(root)]
        place = f"{Path(frames[-1].filename).relative_to(root)}:{frames[-1].lineno}" if frames else module
        return f"{place}: {type(error).__name__}: {error}"
    return ""


def check(
    root: Path,
    files: dict[str, Path],
    doors: Sequence[str],
    libraries: Collection[str] = (),
    without: Collection[str] = (),
) -> tuple[int, int, list[str]]:
    """Import modules of a package in `root`, and look up what they, and the modules that they load, use of libraries.

    The `doors` must be importable. Modules that use one of `libraries` (none: all modules) are imported, too, if what
    they need is installed; `without` are libraries of other environments, which count as not installed. Returns how
    many modules and uses were looked at, and "file:line: what is missing".
    """

    @cache
    def is_here(module: str) -> bool:
        return not module or (find_library(module) not in without and find_spec(module.partition(".")[0]) is not None)

    readers = {name: Reader(name, path) for name, path in files.items()}
    usable = {name for name, reader in readers.items() if all(map(is_here, reader.needs))}
    while stuck := {name for name in usable if readers[name].needs & (readers.keys() - usable)}:
        usable -= stuck
    if libraries:
        usable = {name for name in usable if any(find_library(use[1]) in libraries for use in readers[name].uses)}
    missing = list(filter(None, [find_error(name, root) for name in [*doors, *sorted(usable)]]))
    loaded = sorted(readers.keys() & {*doors, *usable, *sys.modules})
    uses = [(files[name], *use) for name in loaded for use in readers[name].uses if is_here(use[1])]
    for path, line, module, names in uses:
        if lack := find_missing(module, names):
            missing.append(f"{path.relative_to(root)}:{line}: {lack}")
    return len(loaded), len(uses), list(dict.fromkeys(missing))


def find_library(module: str) -> str:
    return module.partition(".")[0].replace("_", "-")


def list_files(root: Path) -> dict[str, Path]:
    """Each module of viewbox, and its file."""
    packages = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    paths = [(name, path) for name in packages for path in root.joinpath(*name.split(".")[1:]).glob("*.py")]
    return {name if path.stem == "__init__" else f"{name}.{path.stem}": path for name, path in paths}


if __name__ == "__main__":
    folder = Path(import_module("viewbox").__path__[0])
    files = {name: path for name, path in list_files(folder).items() if path.stem != "__main__"}
    print(json.dumps(check(folder, files, **json.loads(sys.argv[1]))))
