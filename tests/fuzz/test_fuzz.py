"""Each area runs and finds nothing; planted faults are found, kept and replayed."""

from pathlib import Path

import pytest

from tests.fuzz import __main__ as fuzz
from tests.support.planted_faults import FAULTS

pytestmark = pytest.mark.timeout(300)


def test_a_few_cases_of_each_area_find_nothing(tmp_path, capsys):
    figures = fuzz.Fuzzer(fuzz.AREAS, seed=1, jobs=2, seconds=240, cases=6, folder=tmp_path).run()
    assert figures["findings"] == []
    assert set(figures["cases"].values()) == {6}
    assert figures["passed"]


def test_planted_faults_are_found_kept_and_replayed(tmp_path, capfd):
    areas = {"planted": "tests.support.planted_faults"}
    figures = fuzz.Fuzzer(areas, seed=60, seconds=120, cases=8, folder=tmp_path, hang=8.0).run()  # each fault once
    assert (figures["cases"], figures["passed"]) == ({"planted": 8}, False)
    kept = {}
    for finding in figures["findings"]:
        for path in finding["kept"]:
            kept.setdefault(Path(path).read_text(), (finding["what"], path))
    assert set(kept) == set(FAULTS) - {"good"}
    words = {
        "raise": "KeyError", "score": "AssertionError", "loop": "processor time", "write": "outside its folder: open",
        "start": "subprocess.Popen", "sleep": "more than 8 s", "die": "(7)",
    }  # fmt: skip
    assert [(fault, kept[fault][0]) for fault, word in words.items() if word not in kept[fault][0]] == []
    assert "planted_faults.py" in Path(kept["sleep"][1]).with_suffix(".txt").read_text()  # where it hung
    case = Path(kept["raise"][1])
    explained = case.with_suffix(".txt").read_text()
    assert "KeyError: 'planted'" in explained
    assert f"--replay {case}" in explained
    capfd.readouterr()
    for content, status in (("raise", 1), ("good", 0)):
        case.write_text(content)
        assert fuzz.replay(case, areas) == status
        assert ("KeyError" in capfd.readouterr().out) == bool(status)
