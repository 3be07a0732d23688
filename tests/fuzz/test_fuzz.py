"""The fuzzer works: each area runs, planted faults are found, and each finding is replayed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import __main__ as fuzz
from tests.support.planted_faults import FAULTS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(300)


def test_a_few_cases_of_each_area_find_nothing(tmp_path, capsys):
    figures = fuzz.Fuzzer(fuzz.AREAS, seed=1, jobs=2, seconds=240, cases=6, folder=tmp_path).run()
    assert figures["findings"] == []
    assert set(figures["cases"].values()) == {6}
    assert figures["passed"]


MAKE = """
import hashlib
from tests.fuzz import __main__ as fuzz, worker
for name, module in fuzz.AREAS.items():
    checker = worker.Checker(name, module)
    for seed in (3, 4):
        print(name, seed, hashlib.sha256(b"".join(checker.make_case(seed, n) for n in range(20))).hexdigest())
"""


def test_a_seed_always_makes_the_same_bytes():
    command, pipe = [sys.executable, "-c", MAKE], {"capture_output": True, "text": True}
    made = [subprocess.run(command, **pipe, check=True, cwd=ROOT).stdout for _ in range(2)]
    assert made[0] == made[1]
    assert len({line.split()[2] for line in made[0].splitlines()}) == 2 * len(fuzz.AREAS)


def test_planted_faults_are_found_kept_and_replayed(tmp_path, capfd):
    areas = {"planted": "tests.support.planted_faults"}
    found = fuzz.Fuzzer(areas, seed=60, seconds=120, cases=8, folder=tmp_path, hang=8.0)  # each fault once
    figures = found.run()
    assert figures["cases"] == {"planted": 8}
    assert not figures["passed"]
    kept = {}
    for finding in figures["findings"]:
        for path in finding["kept"]:
            kept.setdefault(Path(path).read_text(), (finding["what"], path))
    assert set(kept) == set(FAULTS) - {"good"}
    said = {fault: what for fault, (what, _) in kept.items()}
    assert "KeyError" in said["raise"]
    assert "AssertionError" in said["score"]
    assert "processor time" in said["loop"]
    assert "outside its folder: open" in said["write"]
    assert "subprocess.Popen" in said["start"]
    assert "more than 8 s" in said["sleep"]
    assert "(7)" in said["die"]
    assert "planted_faults.py" in Path(kept["sleep"][1]).with_suffix(".txt").read_text()  # where it hung
    capfd.readouterr()
    explained = Path(kept["raise"][1]).with_suffix(".txt").read_text()
    assert "KeyError: 'planted'" in explained
    assert f"--replay {kept['raise'][1]}" in explained


@pytest.mark.parametrize(("content", "status"), [("raise", 1), ("good", 0)])
def test_a_case_is_replayed_from_its_bytes(tmp_path, capsys, content, status):
    case = tmp_path / "planted-0-3.case"
    case.write_text(content)
    assert fuzz.replay(case, {"planted": "tests.support.planted_faults"}) == status
    assert ("KeyError" in capsys.readouterr().out) == bool(status)
