"""What tests share: the command run in this process, and a folder with a tiny random policy in it."""

import gc
import json
import os
import random
import signal
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tests.support.publishing import leave_out_check
from viewbox.cli import app as cli
from viewbox.envs.digits import Digits, viewer
from viewbox.utils.frozen import thaw

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: tests run in parallel processes
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a shell that starts the tests in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Every run tries the same generated cases; `pytest --hypothesis-profile=default` tries new ones
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

TESTS = Path(__file__).parent
# What loads torch, trains, starts processes or takes seconds. `make check` leaves these out without importing them.
SLOW = (
    "attacks", "cli/test_rollout.py", "configs/test_bad_input.py", "core/parsing/test_any_reply.py",
    "core/test_determinism.py", "core/test_what_is_said.py", "docs/test_loop_docs.py", "engines", "examples",
    "fuzz", "integrations", "publish", "rollouts", "test_benchmarks.py", "test_shipped_model.py",
    "tools/specialists/models", "tools/specialists/test_mcp.py", "training", "viewer",
)  # fmt: skip
# What takes long and repeats at length what other tests show once: `make nightly`, or name the file.
NIGHTLY = (  # servers that end, benchmarks, trained agents
    "engines/vllm/weights/test_ends_of_runs.py", "test_benchmarks.py", "training/test_agents.py",
)  # fmt: skip
# What needs an environment of its own, with `make test-vllm` and `make test-verl`
OTHER_ENVIRONMENTS = ("vllm", "verl")
LEFT_OUT = {}  # to `make nightly`: file: how many of its cases


@cache
def is_among(path, names):
    return any(path.is_relative_to(TESTS / name) for name in names)


def pytest_ignore_collect(collection_path, config):
    """With `-m "not slow"`, slow files are not even imported, unless one of them is named on the command line.

    Tests that need another environment are collected only if they are named.
    """
    given = [Path(argument.split("::")[0]).resolve() for argument in config.args]
    for name in OTHER_ENVIRONMENTS:
        folder = TESTS / name
        if collection_path.is_relative_to(folder) and not any(path.is_relative_to(folder) for path in given):
            return True
    named = collection_path in given
    if is_among(collection_path, NIGHTLY) and not named and "nightly" not in config.option.markexpr:
        LEFT_OUT[str(collection_path.relative_to(TESTS.parent))] = "all"
        return True
    return True if config.option.markexpr == "not slow" and is_among(collection_path, SLOW) and not named else None


def pytest_collection_modifyitems(config, items):
    for item in items:
        if is_among(item.path, SLOW):
            item.add_marker(pytest.mark.slow)
        if is_among(item.path, NIGHTLY):
            item.add_marker(pytest.mark.nightly)
    if "nightly" not in config.option.markexpr:  # also a single case that is marked so, unless its file is named
        named = {Path(argument.split("::")[0]).resolve() for argument in config.args}
        left = [item for item in items if item.path not in named and item.get_closest_marker("nightly")]
        LEFT_OUT.update(Counter(item.nodeid.split("::")[0] for item in left))
        items[:] = [item for item in items if item not in left]
    items.sort(key=lambda item: (item.path.name != "test_resume.py", not is_among(item.path, SLOW)))  # longest first


@pytest.hookimpl(tryfirst=True)  # before the fixtures of modules
def pytest_runtest_setup():
    """The same random numbers, whatever ran before in this process."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_collection_finish():
    """No collection goes through the many objects of torch and trl again."""
    gc.freeze()
    gc.set_threshold(700, 10, 50)  # full ones stay as rare as they were among so many objects


# ---- seconds of the processor: those of a clock say little of a busy machine
SECONDS = {}  # of each case, with the fixtures that it is the first to ask for, and the processes that have ended


def count_seconds():
    """User and system, of this process and of its children that were waited for."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    before = count_seconds()
    result = yield
    SECONDS[item.nodeid] = count_seconds() - before
    return result


def pytest_sessionfinish(session):
    gc.unfreeze()
    if worker := getattr(session.config, "workeroutput", None):  # of a process that xdist started
        worker["seconds"] = {"all": count_seconds(), **dict(find_dearest(SECONDS))}
        worker["left_out"] = LEFT_OUT


def find_dearest(seconds):
    return sorted(seconds.items(), key=lambda row: row[1], reverse=True)[:10]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Add up what the processes of xdist took; a session without them counts its own."""
    for name, seconds in getattr(node, "workeroutput", {}).get("seconds", {}).items():
        SECONDS[name] = SECONDS.get(name, 0) + seconds
    LEFT_OUT.update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter):
    total = SECONDS.pop("all", 0) or count_seconds()
    if total >= 60:
        terminalreporter.section(f"processor: {total:,.0f} s, of which the dearest cases")
        for name, seconds in find_dearest(SECONDS):
            terminalreporter.line(f"{seconds:7.1f} s  {name}")
        terminalreporter.section("left to `make nightly`: cases of each file")
        for name, cases in sorted(LEFT_OUT.items()):
            terminalreporter.line(f"{cases:>7}  {name}")


@pytest.fixture(autouse=True)
def _forget_modules_of_a_test(tmp_path_factory):
    """A module that a test wrote is not found by a later test that wrote another of its name."""
    before = set(sys.modules)
    yield
    folder = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
            del sys.modules[name]


@pytest.fixture
def viewbox(monkeypatch, capsys):
    """Runs the command in this process: (exit status, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["viewbox", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        said = capsys.readouterr()
        return caught.value.code or 0, said.out, said.err

    return run


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A Qwen3-VL of some 100,000 random weights with its processor, saved; its tokenizer knows the digits' words."""
    from viewbox.engines.hf import tiny_model

    env = Digits()
    said = [line for i in range(30) for line in viewer.write_demonstration(env, env.tasks[i], i, viewer.Habits())]
    prompt = [env.build_system_prompt(env.tasks[0]), *(json.dumps(thaw(schema)) for schema in env.tool_schemas)]
    tok = tiny_model.build_tokenizer([*prompt * 20, *said], 480)
    folder = tmp_path_factory.mktemp("tiny_viewer")
    tiny_model.build_model(tok, hidden=48, layers=2, vision_hidden=32, vision_layers=2).save_pretrained(folder)
    tiny_model.build_processor(tok).save_pretrained(folder)
    return folder


@pytest.fixture
def unchecked(monkeypatch):
    """`publish` without its check in a fresh environment, which takes seconds."""
    leave_out_check(monkeypatch)
