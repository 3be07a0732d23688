"""What holds for the package as a whole: what it imports, what it lists, and that its examples run."""

import ast
import doctest
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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
WITH_EXAMPLES = [name for name, path in MODULES.items() if ">>> " in path.read_text()]
ROOMS = {name.split(".")[1] for name in MODULES if "." in name}


def imports(path):
    """The top-level names of every import in a file, also those inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "").split(".")[0]


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


def test_environments_and_rewards_load_nothing_heavy_and_no_bare_module():
    # In the root, a bare `envs` could be found: it would be a second copy of every class.
    code = f"""
import importlib, sys
for name in {LIGHT!r}:
    importlib.import_module(name)
from viewbox.envs.digits import Digits
env = Digits()
env.play(env.tasks[0], lambda messages: '{{"label": "one"}}')
print(sorted({{name.split('.')[0] for name in sys.modules}}))
"""
    loaded = set(ast.literal_eval(in_a_fresh_process(code)))
    assert not loaded & HEAVY
    assert not loaded & ROOMS


@pytest.mark.parametrize("name", MODULES)
def test_no_module_imports_another_under_its_bare_name(name):
    assert not set(imports(MODULES[name])) & ROOMS


@pytest.mark.parametrize("name", LIGHT)
def test_no_environment_and_no_reward_imports_a_training_library(name):
    assert not set(imports(MODULES[name])) & HEAVY


def test_arrows_point_one_way():
    def rooms(name):
        tree = ast.parse(MODULES[name].read_text())
        named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        named += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        return {module.split(".")[1] for module in named if module.startswith("viewbox.")}

    above = {"rewards": {"envs", "rollouts", "train", "cli"}, "envs": {"rollouts", "train", "cli"}}
    above["rollouts"] = {"train", "cli"}
    for name in MODULES:
        room = name.split(".")[1] if "." in name else ""
        assert not rooms(name) & above.get(room, set()), name


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_in_the_docstrings_run(name):
    module = importlib.import_module(name)
    assert Path(module.__file__).resolve() == MODULES[name]
    result = doctest.testmod(module)
    assert result.failed == 0
