"""Every file and name that the pages below and benchmarks/README.md give in backticks exists."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/architecture.md", "docs/loop.md", "CONTRIBUTING.md")
PLACEHOLDERS = {"envs/NAME/", "file.py", "path/to/file.py"}
NAMED = [(page, name) for page in PAGES for name in re.findall(r"`([\w./]+)`", (ROOT / page).read_text())]
FILES = sorted({name for _, name in NAMED if name.endswith((".py", "/", ".md", ".toml", ".yaml"))} - PLACEHOLDERS)
PAIRS = {pair for page in PAGES for pair in re.findall(r"`([\w./]+\.py):(\w+)`", (ROOT / page).read_text())}
MEMBERS = sorted(pair for pair in PAIRS if pair[0] not in PLACEHOLDERS)
BENCHMARKS = {path.name for path in (ROOT / "benchmarks").glob("*.py")}


def test_every_file_and_folder_that_is_named_exists():
    for path in FILES:
        assert (ROOT / path).exists(), path


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


def test_every_function_and_class_that_is_named_exists():
    for path, name in MEMBERS:
        assert name in list_names(path), (path, name)


def test_the_five_stages_are_in_their_order():
    page = (ROOT / "docs" / "architecture.md").read_text()
    stages = re.findall(r"^\d\. `(\w+)`:", page, re.M)
    assert len(stages) == 5
    assert set(stages) <= list_names("training/grpo/trainer.py")


def test_every_room_is_in_the_table_in_the_order_of_the_arrows():
    table = re.search(r"\| room \|.*?\n\n", (ROOT / "docs" / "architecture.md").read_text(), re.S)[0]
    rooms = [name.removesuffix(".py").removesuffix("/") for name in re.findall(r"`([\w.]+/?)`", table)]
    [contract] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [set(layer.split(" | ")) for layer in reversed(contract["layers"])]
    order = [next(i for i, names in enumerate(layers) if room in names) for room in rooms]
    assert order == sorted(order)
    assert set().union(*layers) == set(rooms)


def test_the_index_of_benchmarks_lists_every_script():
    index = (ROOT / "benchmarks" / "README.md").read_text()
    assert set(re.findall(r"`(\w+\.py)", index)) >= BENCHMARKS
