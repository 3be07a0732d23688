"""What holds for the package as a whole: what it imports, what it lists, and that its examples run."""

import ast
import doctest
import functools
import importlib
import re
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import viewbox
from tests.support.clean_python import run_python
from viewbox.publish.contents import get_distribution, list_library_files

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
LIGHT_ROOMS = {"images", "records", "rewards", "tools", "core", "envs", "publish"}
RUN_MODELS = "viewbox.tools.specialists.models"  # torch, in functions
LIGHT = [
    name
    for name in MODULES
    if name.split(".")[1:2] and name.split(".")[1] in LIGHT_ROOMS and not name.startswith(RUN_MODELS)
]
WITH_EXAMPLES = [name for name, path in MODULES.items() if ">>> " in path.read_text()]
ROOMS = {name.split(".")[1] for name in MODULES if "." in name} - {"__main__"}


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


@pytest.mark.slow
def test_the_package_list_names_every_folder_that_holds_modules_each_with_an_init():
    found = {
        "viewbox" + "".join(f".{part}" for part in path.parent.relative_to(ROOT).parts)
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in NOT_THE_PACKAGE
        and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    }
    assert found == set(PACKAGES)
    for package in PACKAGES:
        assert (folder(package) / "__init__.py").is_file()


def test_importing_viewbox_loads_nothing_heavy(tmp_path):
    code = "import sys, viewbox; print(sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = set(ast.literal_eval(run_python("-c", code, cwd=tmp_path)))
    assert "viewbox" in loaded
    assert not loaded & (HEAVY | {"sklearn", "scipy"})


def list_loaded(*groups):
    """The top-level modules that a new process has loaded after it imported each of these, and played an episode."""
    # In the root, a bare `envs` could be found: it would be a second copy of every class.
    code = f"""
import importlib, sys
for names in {groups!r}:
    for name in names:
        importlib.import_module(name)
    from viewbox.envs.digits import Digits
    env = Digits()
    env.play(env.tasks[0], lambda messages: '{{"label": "one"}}')
    print(sorted({{name.split('.')[0] for name in sys.modules}}))
"""
    return [set(ast.literal_eval(line)) for line in run_python("-c", code, cwd=ROOT).splitlines()]


@pytest.mark.slow
def test_environments_and_rewards_and_then_the_adapter_of_a_framework_load_nothing_heavy_and_no_bare_module():
    frameworks = ("gymnasium", "inspect_ai", "verifiers")
    groups = [[name for name in MODULES if name.startswith(f"viewbox.integrations.{word}")] for word in frameworks]
    light, *adapters = list_loaded(LIGHT, *groups)
    assert "verifiers" not in light
    for framework, loaded in zip(("viewbox", *frameworks), (light, *adapters), strict=True):
        assert framework in loaded
        assert not loaded & (HEAVY | {"sklearn"}), framework
        assert not loaded & ROOMS, framework


def test_no_module_imports_another_by_its_full_or_bare_name_and_no_room_without_torch_a_training_library():
    for name, path in MODULES.items():
        # train.py is a script, too; a check runs in an environment with another viewbox
        if name != "viewbox.train" and not name.startswith("viewbox.publish.checks."):
            assert not {found for found in imports(path) if found == "viewbox" or found in ROOMS}, name
    for name in LIGHT:
        assert not imports(MODULES[name]) & HEAVY, name


# Prefixes of frames, a worker that unpacks nothing, and shipped models, which do not travel
NAME_THEIR_PLACE = {"assets/__init__.py", "images/files/pool.py", "utils/exit_status.py", "utils/importing.py"}


# Of somebody else's process, or asked for by the error that says so.
OPTIONAL = {"aiohttp", "pandas", "ray", "vllm"}
# What a declared package always brings.
BROUGHT = {
    "anyio": "httpx", "httpx2": "mcp", "mcp_types": "mcp", "pydantic_core": "pydantic",
    "safetensors": "transformers", "tokenizers": "transformers", "typing_extensions": "pydantic",
    "fsspec": "datasets", "pyarrow": "datasets",
}  # fmt: skip


def test_every_library_that_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for some in project["optional-dependencies"].values() for line in some)]
    declared = {re.split(r"[^\w.-]", line)[0].lower().replace("_", "-") for line in lines}
    used = {name for path in MODULES.values() for name in imports(path) if name and not name.startswith(".")}
    used -= set(sys.stdlib_module_names) | {"viewbox"}
    missing = {name for name in used if get_distribution(BROUGHT.get(name, name)) not in declared}
    assert missing <= OPTIONAL, missing - OPTIONAL


def test_no_two_modules_import_each_other():
    # Imports under TYPE_CHECKING count: two modules that need each other's types are one module.
    graph = grimp.build_graph("viewbox", cache_dir=None)
    edges = {name: graph.find_modules_directly_imported_by(name) & MODULES.keys() - {"viewbox"} for name in MODULES}
    TopologicalSorter(edges).prepare()  # its error names a circle


def test_every_public_name_is_there_and_what_travels_in_a_zip_file_opens_its_data_by_importlib_resources():
    for name, module in viewbox._HOMES.items():
        assert getattr(viewbox, name) is getattr(importlib.import_module(module), name)
    found = {path.as_posix() for path in list_library_files() if b"__file__" in (ROOT / path).read_bytes()}
    assert found == NAME_THEIR_PLACE


def find_room(name):
    """The room of a module, and whether it needs torch."""
    return name.split(".")[1], name.startswith(HEAVY_ROOMS)


ROOMS_WITH_EXAMPLES = sorted(set(map(find_room, WITH_EXAMPLES)))


@pytest.mark.parametrize(
    "room", [pytest.param(room, marks=pytest.mark.slow) if room[1] else room for room in ROOMS_WITH_EXAMPLES]
)
def test_the_examples_in_the_docstrings_run(room):
    for name in (name for name in WITH_EXAMPLES if find_room(name) == room):
        module = importlib.import_module(name)
        # Of the package that is tested: a checkout, or an installed wheel beside the tests of a release.
        assert Path(module.__file__).relative_to(Path(viewbox.__file__).parent) == MODULES[name].relative_to(ROOT)
        assert doctest.testmod(module).failed == 0, name
