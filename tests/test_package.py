"""What holds for the package as a whole: what it imports, what it lists, and that its examples run."""

import ast
import doctest
import functools
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import viewbox

# their examples load torch or verifiers
HEAVY_ROOMS = ("viewbox.integrations", "viewbox.engines.hf", "viewbox.training")
ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
HEAVY = {"torch", "torchvision", "transformers", "trl", "peft", "accelerate"}
NOT_THE_PACKAGE = {"tests", "benchmarks", "examples", "docs", "build", "dist"}


def folder(package):
    return ROOT.joinpath(*package.split(".")[1:])


def module_name(package, path):
    return package if path.stem == "__init__" else f"{package}.{path.stem}"


MODULES = {module_name(package, path): path for package in PACKAGES for path in sorted(folder(package).glob("*.py"))}
LIGHT = [name for name in MODULES if name.split(".")[1:2] in (["envs"], ["rewards"], ["errors"])]
VERIFIERS = "viewbox.integrations.verifiers"
FRAMEWORKS = tuple(f"viewbox.integrations.{name}" for name in ("verifiers", "gymnasium", "inspect_ai", "openenv"))
WITH_EXAMPLES = [name for name, path in MODULES.items() if ">>> " in path.read_text()]
ROOMS = {name.split(".")[1] for name in MODULES if "." in name} - {"__main__"}
DOTTED_NAME = re.compile(r"\Aviewbox(?:\.\w+)+(?::[\w.]+)?\Z")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# No module imports a room to its right, in whatever way.
ROOMS_IN_ORDER = [
    {"assets", "errors"},
    {"conditions", "files", "frozen", "importing", "terminal"},
    {"network"},
    {"exit_status"},
    {"configs"},
    {"images"},
    {"records"},
    {"rewards"},
    {"envs"},
    {"specialists"},
    {"rollouts"},
    {"training"},
    {"publish"},
    {"cli", "train"},
    {"__main__"},
]


@functools.cache
def imports(path):
    """The top-level names of every import in a file, also those inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or "").split(".")[0])
    return found


def in_a_fresh_process(code, cwd=ROOT):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=cwd).stdout


def test_the_package_list_names_every_folder_that_holds_modules():
    found = {
        "viewbox" + "".join(f".{part}" for part in path.parent.relative_to(ROOT).parts)
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in NOT_THE_PACKAGE
        and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    }
    assert found == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_listed_package_is_a_folder_with_an_init(package):
    assert (folder(package) / "__init__.py").is_file()


def test_importing_viewbox_loads_nothing_heavy(tmp_path):
    code = "import sys, viewbox; print(sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = set(ast.literal_eval(in_a_fresh_process(code, tmp_path)))
    assert "viewbox" in loaded
    assert not loaded & (HEAVY | {"sklearn", "scipy"})


def list_loaded(modules):
    """The top-level modules that a new process has loaded after it imported these and played an episode."""
    # In the root, a bare `envs` could be found: it would be a second copy of every class.
    code = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
from viewbox.envs.digits import Digits
env = Digits()
env.play(env.tasks[0], lambda messages: '{{"label": "one"}}')
print(sorted({{name.split('.')[0] for name in sys.modules}}))
"""
    return set(ast.literal_eval(in_a_fresh_process(code)))


def test_environments_and_rewards_load_nothing_heavy_and_no_bare_module():
    loaded = list_loaded([name for name in LIGHT if not name.startswith(FRAMEWORKS)])
    assert not loaded & (HEAVY | {"sklearn", "verifiers"})
    assert not loaded & ROOMS


@pytest.mark.slow
def test_the_adapter_of_verifiers_loads_nothing_heavy_and_no_bare_module():
    loaded = list_loaded([name for name in LIGHT if name.startswith(VERIFIERS)])
    assert "verifiers" in loaded
    assert not loaded & (HEAVY | {"sklearn"})
    assert not loaded & ROOMS


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["gymnasium", "inspect_ai"])
def test_the_adapter_of_a_framework_loads_nothing_heavy_and_no_bare_module(framework):
    loaded = list_loaded([f"viewbox.integrations.{framework}"])
    assert framework in loaded
    assert not loaded & (HEAVY | {"sklearn"})
    assert not loaded & ROOMS


@pytest.mark.parametrize("name", MODULES)
def test_no_module_imports_another_under_its_bare_name(name):
    assert not imports(MODULES[name]) & ROOMS


@pytest.mark.parametrize("name", LIGHT)
def test_no_environment_and_no_reward_imports_a_training_library(name):
    assert not imports(MODULES[name]) & HEAVY


def get_room(module):
    """The first of `ROOMS_IN_ORDER` that holds a module, as its place in the list."""
    inside = module.removeprefix("viewbox.")
    return next(place for place, names in enumerate(ROOMS_IN_ORDER) if inside.split(".")[0] in names)


def list_imports(tree):
    """(imported dotted name, whether it is imported with the module itself) of every import of the package in a file.

    Imports by string count too: `import_module("viewbox.a")`, tables of "viewbox.a.b" and of "viewbox.a:Name".
    """
    later = {id(inner) for node in ast.walk(tree) if isinstance(node, FUNCTIONS) for inner in ast.walk(node)}
    loggers = {
        id(node.args[0]) for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args and is_logger(node)
    }
    for node in ast.walk(tree):
        at_import = id(node) not in later
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "viewbox":
            for alias in node.names:
                yield f"{node.module}.{alias.name}", at_import
        elif isinstance(node, ast.Import):
            yield from ((alias.name, at_import) for alias in node.names if alias.name.split(".")[0] == "viewbox")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in loggers:
            yield from ((name.replace(":", "."), False) for name in DOTTED_NAME.findall(node.value))


def is_logger(call):
    return isinstance(call.func, ast.Attribute) and call.func.attr == "getLogger"


def find_module(dotted):
    """The module that defines `dotted`; a name of `viewbox` itself is defined where its table says. None: no module."""
    if dotted.rpartition(".")[0] == "viewbox" and dotted not in MODULES:
        return viewbox._HOMES.get(dotted.removeprefix("viewbox."))
    while dotted and dotted not in MODULES:
        dotted = dotted.rpartition(".")[0]
    return dotted or None


@functools.cache
def imported_modules(name):
    """(module, whether it is imported together with `name`) of each module that `name` imports."""
    found = {(find_module(dotted), early) for dotted, early in list_imports(ast.parse(MODULES[name].read_text()))}
    return sorted((module, early) for module, early in found if module not in (None, "viewbox", name))


def test_type_checkers_see_the_names_that_viewbox_exports_and_each_exists():
    tree = ast.parse(MODULES["viewbox"].read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body for alias in node.names}
    assert typed == viewbox._HOMES
    for name, module in typed.items():
        assert getattr(viewbox, name) is getattr(importlib.import_module(module), name)


def test_every_module_belongs_to_a_room():
    for name in MODULES.keys() - {"viewbox"}:
        get_room(name)


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {"viewbox"}))
def test_no_module_imports_a_room_to_its_right(name):
    wrong = {module for module, _ in imported_modules(name) if get_room(module) > get_room(name)}
    assert not wrong


def test_no_two_modules_import_each_other():
    # Imports under TYPE_CHECKING count: two modules that need each other's types are one module.
    edges = {name: [module for module, early in imported_modules(name) if early] for name in MODULES}
    assert find_circles(edges) == []


def find_circles(edges):
    """The strongly connected components of more than one module (Tarjan, 1972)."""
    number, low, stack, circles = {}, {}, [], []

    def visit(name):
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in edges[name]:
            if other not in number:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == number[name]:
            circle = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(circle) > 1:
                circles.append(circle)

    for name in edges:
        if name not in number:
            visit(name)
    return circles


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n.startswith(HEAVY_ROOMS) else n for n in WITH_EXAMPLES]
)
def test_the_examples_in_the_docstrings_run(name):
    module = importlib.import_module(name)
    # Of the package that is tested: a checkout, or an installed wheel beside the tests of a release.
    assert Path(module.__file__).relative_to(Path(viewbox.__file__).parent) == MODULES[name].relative_to(ROOT)
    result = doctest.testmod(module)
    assert result.failed == 0
