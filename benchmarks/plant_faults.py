"""Plants faults in the package, one at a time, and says which tests notice each.

    python benchmarks/plant_faults.py --rooms rewards --tests tests/rewards --count 120 --seed 0 --out before.jsonl
    python benchmarks/plant_faults.py --rooms rewards --tests tests/rewards --faults before.jsonl --out after.jsonl
    python benchmarks/plant_faults.py --lost before.jsonl after.jsonl

Run it in the checkout. The tests are collected once, and one run with coverage says which test reaches which line. Then
each fault is planted in a fork, where the tests that reach its line run, the quickest first, until one fails. Tests
that start processes run too: the fault is written into the file until the fork has ended. A fault that hangs is caught.
What a table makes when it is collected was made before the fault. `--matrix` runs all of these tests, so that the row
of a fault lists every test that catches it, and prints how many faults are caught by one test, by two to four, and by
more. `--lost` prints the faults that were caught before and are not after; exit code 1 if there are any. The last line
of a run is one JSON object.

Kinds of faults: `off by one`, `compare` (< for <=, == for !=), `negate` (a condition), `operator` (+ for -, and for
or), `not` (dropped), `branch` (the body of an `if` is dropped), `check` (an `if` that raises is dropped), `swap` (the
first two arguments), `default` (of a function or a dataclass), `unit` (a factor is dropped), `call` (a statement that
only calls is dropped), `none` (is returned), `word` (the first of a text of three words and more). They are drawn with
the seed, as many of each kind as there are.
"""

import argparse
import ast
import contextlib
import dataclasses
import importlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

Fault = dict[str, Any]
PACKAGE = "viewbox"
CAUGHT = ("caught", "hangs")
TURNED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


# ---------------------------------------------------------------------- the faults
def list_kinds(node: ast.AST) -> Iterator[str]:
    """Yield the faults that can be made of a node inside a function."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED:
        yield "compare"
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in TURNED:
        yield "operator"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div) and is_constant(node.right, int, float):
        yield "unit"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not"
    if is_constant(node, int, float, bool):
        yield "off by one"
    if is_constant(node, str) and len(node.value.split()) > 2:
        yield "word"
    if isinstance(node, ast.If | ast.IfExp):
        yield "negate"
    if isinstance(node, ast.If):
        yield "check" if isinstance(node.body[-1], ast.Raise) else "branch"
    if isinstance(node, ast.Call) and len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
        yield "swap"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "call"
    if isinstance(node, ast.Return) and node.value is not None and not is_constant(node.value, type(None)):
        yield "none"


def is_constant(node: Any, *types: type) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in types


def change(node: Any, kind: str) -> None:
    """Make a fault in place."""
    if kind == "compare":
        node.ops[0] = TURNED[type(node.ops[0])]()
    elif kind == "operator":
        node.op = TURNED[type(node.op)]()
    elif kind == "unit":
        node.op, node.right = ast.Mult(), ast.Constant(1)
    elif kind == "not":
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
    elif kind in ("off by one", "default"):
        node.value = change_value(node.value)
    elif kind == "word":
        node.value = node.value.replace(node.value.split()[0], "", 1)
    elif kind == "negate":
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif kind in ("branch", "check"):
        node.test = ast.BoolOp(ast.And(), [node.test, ast.Constant(False)])
    elif kind == "swap":
        node.args[:2] = node.args[1::-1]
    else:
        node.value = ast.Constant(None)


def change_value(value: Any) -> Any:
    return not value if isinstance(value, bool) else value + 1


def list_faults(path: str) -> list[Fault]:
    """Return all faults of a file: qualified name of the function or class, number of the node, line, kind."""
    tree = ast.parse(Path(path).read_text("utf-8"))
    numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
    faults: list[Fault] = []

    def add(node: Any, name: str, kind: str, **more: Any) -> None:
        faults.append(
            {"file": path, "name": name, "node": numbers[id(node)], "line": node.lineno, "kind": kind, **more}
        )

    def visit(node: ast.AST, name: str, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inner = f"{name}.{getattr(child, 'name', '')}".strip(".")
            if isinstance(child, ast.ClassDef) and not inside:
                for line in child.body:  # a default of a dataclass
                    if isinstance(line, ast.AnnAssign) and is_constant(line.value, int, float, bool):
                        add(line.value, inner, "default", field=line.target.id)
                visit(child, inner, False)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                for default in () if inside else (*child.args.defaults, *child.args.kw_defaults):
                    if is_constant(default, int, float, bool):
                        add(default, inner, "default")
                for line in child.body:
                    visit(ast.Module([line], []), name if inside else inner, True)
            elif isinstance(child, ast.Expr) and is_constant(child.value, str):
                continue  # a docstring
            elif inside:
                for kind in list_kinds(child):
                    add(child, name, kind)
                visit(child, name, inside)
            elif not isinstance(child, ast.ClassDef):
                visit(child, name, inside)

    visit(tree, "", False)
    return [fault for fault in faults if fault["name"]]


def draw_faults(rooms: list[str], count: int, seed: int) -> list[Fault]:
    """Return as many faults of each kind as there are, each on a line of its own."""
    paths = [path for room in rooms for path in ([room] if room.endswith(".py") else sorted(Path(room).rglob("*.py")))]
    by_kind: dict[str, list[Fault]] = defaultdict(list)
    for path in paths:
        for fault in list_faults(str(path)):
            by_kind[fault["kind"]].append(fault)
    rng = random.Random(seed)
    for kind in sorted(by_kind):
        rng.shuffle(by_kind[kind])
    chosen: dict[tuple[str, int], Fault] = {}
    while len(chosen) < count and any(by_kind.values()):
        for kind in sorted(by_kind):
            if by_kind[kind] and len(chosen) < count:
                fault = by_kind[kind].pop()
                chosen.setdefault((fault["file"], fault["line"]), fault)
    return list(chosen.values())


# ---------------------------------------------------------------------- planting
def build_tree(fault: Fault) -> ast.Module:
    """Return the file with the fault in it."""
    tree = ast.parse(Path(fault["file"]).read_text("utf-8"))
    change(list(ast.walk(tree))[fault["node"]], fault["kind"])
    return ast.fix_missing_locations(tree)


def plant(fault: Fault, tree: ast.Module) -> None:
    """Change the running code."""
    name = fault["file"].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    target: Any = importlib.import_module(f"{PACKAGE}.{name}")
    for step in fault["name"].split("."):
        target = vars(target)[step]
    if "field" in fault:
        change_default(target, fault["field"])
        return
    function = unwrap(target)
    if fault["kind"] != "default":
        code = compile(tree, fault["file"], "exec", dont_inherit=True)
        function.__code__ = find_code(code, fault["name"].split("."))
        return
    node: Any = tree
    for step in fault["name"].split("."):
        node = next(child for child in node.body if getattr(child, "name", None) == step)
    if function.__defaults__:
        both = zip(node.args.defaults, function.__defaults__, strict=True)
        function.__defaults__ = tuple(new.value if isinstance(new, ast.Constant) else old for new, old in both)
    for argument, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if isinstance(value, ast.Constant):
            function.__kwdefaults__[argument.arg] = value.value


def change_default(cls: Any, name: str) -> None:
    """Change a default of a dataclass."""
    if not dataclasses.is_dataclass(cls):
        raise LookupError(name)
    field = cls.__dataclass_fields__[name]
    field.default = new = change_value(field.default)
    if name in vars(cls):
        type.__setattr__(cls, name, new)
    init: Any = cls.__init__
    names = init.__code__.co_varnames[: init.__code__.co_argcount]
    if init.__defaults__ and name in names:
        place = names.index(name) - (len(names) - len(init.__defaults__))
        init.__defaults__ = (*init.__defaults__[:place], new, *init.__defaults__[place + 1 :])
    elif name in (init.__kwdefaults__ or {}):
        init.__kwdefaults__[name] = new
    else:
        raise LookupError(name)


def unwrap(function: Any) -> FunctionType:
    """Return a function without its decorators."""
    for _ in range(6):
        if isinstance(function, FunctionType) and not hasattr(function, "__wrapped__"):
            return function
        keys = ("fget", "func", "__func__", "__wrapped__", "function")
        function = next(getattr(function, key) for key in keys if hasattr(function, key))
    raise LookupError(function)


def find_code(code: CodeType, names: list[str]) -> CodeType:
    """Return the code of a function inside compiled code."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType) and const.co_name == names[0]][-1]
    return inner if len(names) == 1 else find_code(inner, names[1:])


# ---------------------------------------------------------------------- the tests
class Failures:
    """The tests that failed, as a plugin of pytest."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)


class Planter:
    """Takes the place of pytest's loop over the collected tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Any) -> bool:
        options = self.options
        reached = self._measure(session)
        say(f"{len(session.items)} tests, {reached['cpu']:.1f} s of the processor; fail as it is: {reached['failed']}")
        items = {item.nodeid: item for item in session.items if item.nodeid not in reached["failed"]}
        if options.faults:
            faults = [fault for fault in read_rows(options.faults) if fault["found"] != "left out"]
        else:
            faults = draw_faults(options.rooms, options.count, options.seed)
        rows = []
        with open(options.out, "w") as out:
            for fault in faults:
                lines = reached["lines"].get(fault["file"], {})
                at_import = "field" in fault or fault["kind"] == "default"  # the line ran with the module
                tests = (
                    {test for line in lines.values() for test in line}
                    if at_import
                    else {*lines.get(str(fault["line"]), ())}
                )
                chosen = sorted(
                    (tests | {*reached["spawns"]}) & items.keys(), key=lambda test: reached["seconds"][test]
                )
                found, by = self._try_fault(session, fault, [items[test] for test in chosen])
                rows.append({**fault, "found": found, "by": by})
                out.write(json.dumps(rows[-1]) + "\n")
                out.flush()
        counts = Counter(row["found"] for row in rows)
        if options.matrix:
            counts |= Counter(f"by {describe_count(len(row['by']))}" for row in rows if row["found"] == "caught")
        say("\n" + json.dumps({"faults": len(rows), **counts}))
        return True

    def _measure(self, session: Any) -> dict[str, Any]:
        """Return which test reaches which line, how long it takes, and which starts processes; measured in a fork."""
        with tempfile.NamedTemporaryFile() as result:
            child = os.fork()
            if child == 0:
                try:
                    with silent():
                        Path(result.name).write_text(json.dumps(self._measure_inside(session)))
                except BaseException:
                    traceback.print_exc(file=sys.__stderr__)
                os._exit(0)
            os.waitpid(child, 0)
            measured: dict[str, Any] = json.loads(Path(result.name).read_text())
            return measured

    def _measure_inside(self, session: Any) -> dict[str, Any]:
        import coverage  # the package: a benchmark has its name

        include = [str(Path.cwd() / (room if room.endswith(".py") else f"{room}/*")) for room in self.options.rooms]
        cover = coverage.Coverage(data_file=None, include=include, config_file=False)
        failures = Failures()
        session.config.pluginmanager.register(failures)
        seconds, spawns = {}, []
        cover.start()
        begin = os.times()
        for item, following in zip(session.items, [*session.items, None][1:], strict=True):
            cover.switch_context(item.nodeid)
            before = os.times()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            after = os.times()
            seconds[item.nodeid] = sum(after[:4]) - sum(before[:4])
            if after.children_user > before.children_user:
                spawns.append(item.nodeid)
        cover.stop()
        data = cover.get_data()
        lines = {
            os.path.relpath(path): {
                line: [*filter(None, tests)] for line, tests in data.contexts_by_lineno(path).items()
            }
            for path in data.measured_files()
        }
        cpu = sum(os.times()[:4]) - sum(begin[:4])
        return {"lines": lines, "seconds": seconds, "spawns": spawns, "failed": failures.failed, "cpu": cpu}

    def _try_fault(self, session: Any, fault: Fault, items: list[Any]) -> tuple[str, list[str]]:
        """Return how the tests ended with a fault, and those that failed."""
        tree, path = build_tree(fault), Path(fault["file"])
        text, stat = path.read_bytes(), path.stat()
        with tempfile.NamedTemporaryFile() as result:
            child = os.fork()
            if child == 0:
                os.setsid()
                os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
                status = 1  # a fault that breaks pytest is caught
                try:
                    status = self._run_inside(session, fault, tree, items, Path(result.name))
                except BaseException:
                    traceback.print_exc(file=sys.__stderr__)
                os._exit(status)
            try:
                path.write_text(ast.unparse(tree))
                signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
                signal.alarm(self.options.limit)
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                signal.alarm(0)
            finally:
                path.write_bytes(text)
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            by = json.loads(Path(result.name).read_text() or "[]")
        return {0: "missed", 77: "left out", -9: "hangs"}.get(status, "caught"), by

    def _run_inside(self, session: Any, fault: Fault, tree: ast.Module, items: list[Any], result: Path) -> int:
        """Run tests with a fault, and write down those that fail; return the status of the fork."""
        try:
            plant(fault, tree)
        except (LookupError, StopIteration, ValueError, TypeError, AttributeError):
            return 77
        failures = Failures()
        session.config.pluginmanager.register(failures)
        with silent():
            for item, following in zip(items, [*items, None][1:], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if failures.failed and not self.options.matrix:
                    break
        result.write_text(json.dumps(failures.failed))
        return 1 if failures.failed else 0


@contextlib.contextmanager
def silent() -> Iterator[None]:
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        yield


def say(text: str) -> None:
    print(text, file=sys.__stdout__, flush=True)


def describe_count(tests: int) -> str:
    return "one test" if tests < 2 else "two to four" if tests < 5 else "five and more"


def read_rows(path: str) -> list[Fault]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def list_lost(before: str, after: str) -> list[Fault]:
    """Return the faults that were caught before and are missed after."""
    keys = ("file", "name", "node", "kind", "field")
    missed = {tuple(map(row.get, keys)) for row in read_rows(after) if row["found"] not in CAUGHT}
    return [row for row in read_rows(before) if row["found"] in CAUGHT and tuple(map(row.get, keys)) in missed]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--rooms", nargs="+", help="folders or files of the package; default: rewards, or the files of --faults"
    )
    parser.add_argument("--tests", nargs="+", default=["tests/rewards"])
    parser.add_argument("-k", dest="only", default="", help="as pytest's -k")
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=120, help="seconds a fault; beyond it, it hangs")
    parser.add_argument("--faults", metavar="FILE", help="the faults of an earlier run instead of new ones")
    parser.add_argument("--out", default="build/faults.jsonl")
    parser.add_argument("--matrix", action="store_true", help="list every test that catches a fault")
    parser.add_argument("--lost", nargs=2, metavar=("BEFORE", "AFTER"))
    options = parser.parse_args()
    if options.lost:
        lost = list_lost(*options.lost)
        for row in lost:
            print(f"lost: {row['file']}:{row['line']} {row['name']} {row['kind']}, was caught by {row['by'][:3]}")
        return int(bool(lost))
    options.rooms = options.rooms or (
        sorted({row["file"] for row in read_rows(options.faults)}) if options.faults else ["rewards"]
    )
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    sys.path[:1] = [str(Path.cwd().parent), str(Path.cwd())]  # in place of this script's folder
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options.tests, "-k", options.only]
    return int(pytest.main(arguments, plugins=[Planter(options)]))


if __name__ == "__main__":
    sys.exit(main())
