"""What pages list exists, and is all there is: files, names, rooms, extras, public names, and what is released."""

import ast
import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest

import viewbox

ROOT = Path(__file__).resolve().parents[2]
TOML = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGES = ("docs/architecture.md", "docs/loop.md", "CONTRIBUTING.md", "AGENTS.md")
PLACEHOLDERS = {"envs/NAME/", "file.py", "path/to/file.py"}
NAMED = [(page, name) for page in PAGES for name in re.findall(r"`([\w./]+)`", (ROOT / page).read_text())]
FILES = sorted({name for _, name in NAMED if name.endswith((".py", "/", ".md", ".toml", ".yaml"))} - PLACEHOLDERS)
PAIRS = {pair for page in PAGES for pair in re.findall(r"`([\w./]+\.py):(\w+)`", (ROOT / page).read_text())}
MEMBERS = sorted(pair for pair in PAIRS if pair[0] not in PLACEHOLDERS)
BENCHMARKS = {path.name for path in (ROOT / "benchmarks").glob("*.py")}


def test_every_file_folder_function_and_class_that_is_named_exists_and_every_benchmark_is_listed():
    for path in FILES:
        assert (ROOT / path).exists(), path
    for path, name in MEMBERS:
        assert name in list_names(path), (path, name)
    index = (ROOT / "benchmarks" / "README.md").read_text()
    assert set(re.findall(r"`(\w+\.py)", index)) >= BENCHMARKS


def list_names(path):
    """The functions and classes of a file, also inside classes, and its own variables."""
    tree = ast.parse((ROOT / path).read_text())
    definitions = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    names = {node.name for node in ast.walk(tree) if isinstance(node, definitions)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def test_the_five_stages_are_in_their_order():
    page = (ROOT / "docs" / "architecture.md").read_text()
    stages = re.findall(r"^\d\. `(\w+)`:", page, re.M)
    assert len(stages) == 5
    assert set(stages) <= list_names("training/grpo/trainer.py")


def test_every_room_is_in_the_table_in_the_order_of_the_arrows():
    table = re.search(r"\| room \|.*?\n\n", (ROOT / "docs" / "architecture.md").read_text(), re.S)[0]
    rooms = [name.removesuffix(".py").removesuffix("/") for name in re.findall(r"`([\w.]+/?)`", table)]
    [contract] = TOML["tool"]["importlinter"]["contracts"]
    layers = [set(layer.split(" | ")) for layer in reversed(contract["layers"])]
    order = [next(i for i, names in enumerate(layers) if room in names) for room in rooms]
    assert order == sorted(order)
    assert set().union(*layers) == set(rooms)


# ---- a release


def test_every_extra_is_in_the_table_and_the_changelog_begins_with_the_version_of_the_package():
    table = re.findall(r"^\| `([a-z]+)` \|", (ROOT / "docs" / "installing.md").read_text(), re.M)
    assert table == list(dict.fromkeys(table))
    assert set(table) == set(TOML["project"]["optional-dependencies"])
    first = re.search(r"^## (?!Unreleased)(\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    assert first == viewbox.__version__
    assert "version" in TOML["project"]["dynamic"]


def test_every_folder_that_is_committed_is_released():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {path.split("/")[0] for path in listed.split("\n") if "/" in path}
    grafted = set(re.findall(r"^graft (\S+)", (ROOT / "MANIFEST.in").read_text(), re.M))
    packages = {name.split(".")[1] for name in TOML["tool"]["setuptools"]["packages"] if "." in name}
    assert folders == grafted | packages


def test_every_public_name_is_described_once_and_what_an_author_writes_is_there():
    script = runpy.run_path(str(ROOT / "docs" / "api_page.py"))
    listed = [name for names in script["SECTIONS"].values() for name in names if ":" not in name]
    assert len(listed) == len(set(listed))
    assert set(viewbox.__all__) - {"__version__"} == set(listed)
    page = script["build_page"]()
    for name in ("tasks", "demonstration", "oracle", "metrics", "restricted", "Source", "Turn", "EpisodeWriter"):
        assert re.search(rf"[`*|] ?`?{name}\b", page), name
    assert "Args:" not in page
