"""A `kill -9` in the middle of an export leaves no file of its name, or a whole one; the next export works."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.support.saved_episodes import made, written
from viewbox.rollouts.exchange.export import export_run
from viewbox.rollouts.store.reader import load

EXPORT = """
import sys
from viewbox.rollouts.exchange.export import export_run
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.exchange.selection import Choice, filter_run
run, out = sys.argv[1:]
print("ready", flush=True)
for number in range(10_000):
    export_run(run, "openai", f"{out}/{number}.jsonl")
    export_run(run, "inspect", f"{out}/{number}.json")
    filter_run(run, f"{out}/{number}-filtered", Choice())
    import_file(f"{out}/{number}.jsonl", "openai", f"{out}/{number}-imported")
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.nightly)])
def test_what_a_killed_process_leaves_is_whole(tmp_path, kills):
    run = written(tmp_path / "run", *(made(number) for number in range(30)))
    complete = 0
    draw = random.Random(0)
    for attempt in range(kills):
        out = tmp_path / f"out-{attempt}"
        out.mkdir()
        child = subprocess.Popen([sys.executable, "-c", EXPORT, run, out], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n"
        while all(path.name.startswith(".") for path in out.iterdir()):
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.25))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        for path in out.iterdir():
            if path.name.startswith("."):
                assert path.name.endswith(".tmp")
                continue
            text = path.read_text() if path.is_file() else ""
            found = json.loads(text)["samples"] if path.suffix == ".json" else list(map(json.loads, text.splitlines()))
            assert len(found or list(load(path))) == 30
            complete += 1
    assert complete >= kills
    assert export_run(run, "openai", out / "again.jsonl").kept == 30
