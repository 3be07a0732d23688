"""Changes one operator, constant, condition or result at a time, and counts how many changes the tests notice.

    python benchmarks/seeded_faults.py [--root FOLDER] [--count 200] [--seed 0] [--rooms core rewards rollouts/store]

A fault is made in the running code of one function (a comparison turned, `and` for `or`, a number off by one, `None`
returned …), in a process of its own, and the tests of that room run until one fails. A fault that needs more than
`--limit` seconds counts as noticed: it hangs. The faults are drawn with the seed from all functions of the rooms, so
two versions of a room are compared by their shares, not fault by fault. `--root` is the checkout to try; its folder
must be named viewbox. The last line is one JSON object: for each room `faults` and `noticed`, and those that no test
noticed.
"""

import argparse
import ast
import contextlib
import copy
import importlib
import io
import json
import os
import random
import signal
import sys
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

TESTS = {"core": ["tests/core"], "rewards": ["tests/rewards"], "rollouts/store": ["tests/rollouts/store"]}
TURNED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def list_changes(node: ast.AST) -> list[str]:
    """Return the changes that can be made to a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED:
        return ["compare"]
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in TURNED:
        return ["operator"]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ["drop not"]
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        return ["constant"]
    if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        return ["return None"]
    return ["negate"] if isinstance(node, ast.If | ast.IfExp) else []


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def change(node: Any, how: str) -> None:
    """Make a change in place."""
    if how == "compare":
        node.ops[0] = TURNED[type(node.ops[0])]()
    elif how == "operator":
        node.op = TURNED[type(node.op)]()
    elif how == "drop not":
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
    elif how == "constant":
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif how == "return None":
        node.value = ast.Constant(None)
    else:
        node.test = ast.UnaryOp(ast.Not(), node.test)


def list_faults(room: str) -> list[tuple[str, str, int, str]]:
    """Return (file, function, number of the node in the file, change) of all faults of a room."""
    faults = []
    for path in sorted(Path(room).rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}

        def visit(node: ast.AST, name: str, inside: bool, path: Path = path, numbers: dict = numbers) -> None:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.ClassDef) and not inside:
                    visit(child, f"{name}.{child.name}".lstrip("."), False)
                elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    for part in child.body:
                        visit(ast.Module([part], []), name if inside else f"{name}.{child.name}".lstrip("."), True)
                elif inside:
                    faults.extend((str(path), name, numbers[id(child)], how) for how in list_changes(child))
                    visit(child, name, inside)
                elif not isinstance(child, ast.ClassDef):
                    visit(child, name, inside)

        visit(tree, "", False)
    return [fault for fault in faults if fault[1]]


def find_function(module: Any, name: str) -> FunctionType:
    """Return the running function of a qualified name, without its decorators."""
    owner, *rest = name.split(".")
    found = vars(module)[owner]
    for part in rest:
        found = vars(found)[part]
    for _ in range(5):
        if isinstance(found, FunctionType) and not hasattr(found, "__wrapped__"):
            return found
        found = next(
            getattr(found, key)
            for key in ("fget", "func", "__func__", "__wrapped__", "function")
            if hasattr(found, key)
        )
    raise LookupError(name)


def find_code(code: CodeType, names: list[str]) -> CodeType:
    """Return the code of a function inside compiled code."""
    inner = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == names[0])
    return inner if len(names) == 1 else find_code(inner, names[1:])


def plant(fault: tuple[str, str, int, str]) -> None:
    """Change the running code."""
    path, name, number, how = fault
    module = importlib.import_module("viewbox." + path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    tree = copy.deepcopy(ast.parse(Path(path).read_text("utf-8")))
    change(list(ast.walk(tree))[number], how)
    code = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    find_function(module, name).__code__ = find_code(code, name.split("."))


def try_fault(fault: tuple[str, str, int, str] | None, tests: list[str], limit: int) -> str:
    """Return how the tests ended with a fault: "noticed", "hangs", "missed" or "left out" (it cannot be planted)."""
    child = os.fork()
    if child == 0:
        import pytest

        os.setsid()
        quiet = io.StringIO()
        try:
            if fault is not None:
                plant(fault)
        except (LookupError, StopIteration, ValueError, TypeError, KeyError):
            os._exit(77)
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))
        os._exit(status)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
    signal.alarm(limit)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(0)
    return {0: "missed", 77: "left out", -9: "hangs"}.get(status, "noticed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=".")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--rooms", nargs="+", default=list(TESTS))
    chosen = parser.parse_args()
    os.chdir(chosen.root)
    sys.path[:0] = [str(Path.cwd().parent), str(Path.cwd())]
    for room in chosen.rooms:
        assert try_fault(None, TESTS[room], 3600) == "missed", f"{room}: its tests fail without a fault"
    faults = [(room, fault) for room in chosen.rooms for fault in list_faults(room)]
    random.Random(chosen.seed).shuffle(faults)
    figures: dict[str, dict[str, Any]] = {room: {"faults": 0, "noticed": 0, "missed": []} for room in chosen.rooms}
    for room, fault in faults:
        if sum(one["faults"] for one in figures.values()) >= chosen.count:
            break
        found = try_fault(fault, TESTS[room], chosen.limit)
        print(room, *fault, found, flush=True)
        if found != "left out":
            figures[room]["faults"] += 1
            figures[room]["noticed"] += found != "missed"
            figures[room]["missed"] += [" ".join(map(str, fault))] * (found == "missed")
    noticed, tried = (sum(one[key] for one in figures.values()) for key in ("noticed", "faults"))
    print(json.dumps({"noticed": noticed, "faults": tried, "rooms": figures}))


if __name__ == "__main__":
    main()
