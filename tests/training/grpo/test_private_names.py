"""The contract with the pinned TRL and transformers: every private name that is used is listed, and exists there."""

import ast
import inspect
import re
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from transformers import Trainer
from trl import GRPOTrainer

from viewbox.training import checkpoints
from viewbox.training.grpo import trainer

TRAINING = Path(checkpoints.__file__).parent
TABLES = {trainer: (trainer.PRIVATE_NAMES, GRPOTrainer), checkpoints: (checkpoints.PRIVATE_NAMES, Trainer)}


@cache
def read_names(owner):
    """The names that a class or one of its bases defines, or assigns to `self`."""
    names = set(dir(owner))
    for base in owner.__mro__[:-1]:
        for line in inspect.getsource(base).splitlines():
            left, equals, _ = line.rpartition("=")
            names |= set(re.findall(r"\bself\.(\w+)", left)) if equals else set()
    return names


def exists(owner, name):
    return name in read_names(owner)


def defined_by_us():
    """The private names that classes of ours define: methods, annotated attributes, and what methods assign."""
    names = set()
    for path in TRAINING.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
            elif isinstance(node, ast.Assign):
                targets = [leaf for target in node.targets for leaf in ast.walk(target)]
                names |= {leaf.attr for leaf in targets if isinstance(leaf, ast.Attribute)}
    return names


def test_every_private_name_in_a_table_exists_in_the_library_of_the_pinned_minor_version():
    assert metadata.version("trl").startswith("1.16.")
    assert metadata.version("transformers").startswith("5.23.")
    for table, owner in TABLES.values():
        assert [name for name in table if not exists(owner, name)] == []


def test_every_private_name_that_is_used_is_in_a_table_and_no_name_of_ours_hides_one():
    listed = {name for table, _ in TABLES.values() for name in table}
    used = {}
    for path in TRAINING.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr) and exists(GRPOTrainer, node.attr):
                used.setdefault(node.attr, path.name)
    assert {name: file for name, file in used.items() if name not in listed} == {}
    assert used
    private = {name for name in defined_by_us() if name.startswith("_") and not name.startswith("__")}
    assert {name for name in private if exists(GRPOTrainer, name)} <= listed


@pytest.mark.parametrize("module", TABLES, ids=lambda module: module.__name__)
def test_each_library_is_reached_into_from_one_file(module):
    table, _ = TABLES[module]
    others = [path for path in TRAINING.rglob("*.py") if path != Path(module.__file__)]
    shared = {"_compute_loss"} if module is checkpoints else set()
    for path in others:
        used = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not used & (set(table) - shared), path
