"""The words read as denied are those marked by hand, on sentences that the rules were not tuned on as well."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "negation_scope.py"
SPEC = importlib.util.spec_from_file_location("viewbox_benchmark_negation_scope", SCRIPT)
sys.modules[SPEC.name] = SCOPE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SCOPE)
SENTENCES = SCOPE.read_sentences()


@pytest.mark.parametrize("held_out", [False, True], ids=["tuned on", "held out"])
def test_the_bar_is_reached(held_out):
    chosen = [sentence for sentence in SENTENCES if sentence.held_out == held_out]
    assert len(chosen) > 75
    assert SCOPE.compute_figures(map(SCOPE.count_errors, chosen)).f1 >= SCOPE.BAR


def test_the_marks_are_read():
    sentence = SCOPE.parse_sentence("Large heart, <no> [edema in the lung].")
    assert sentence.text == "Large heart, no edema in the lung."
    assert sentence.words == ["large", "heart", "no", "edema", "in", "the", "lung"]
    assert sentence.denied == [False, False, None, True, True, True, True]


def test_what_is_missed_and_what_is_too_much_are_counted():
    assert SCOPE.count_errors(SCOPE.parse_sentence("<No> [mass]. Effusion.")) == (1, 0, 0)
    assert SCOPE.count_errors(SCOPE.parse_sentence("<No> mass. [Effusion].")) == (0, 1, 1)
    assert SCOPE.compute_figures([(3, 1, 0), (0, 0, 3)]) == (3 / 4, 3 / 6, 3 / 5)


def test_negex_lines_are_read(tmp_path):
    lines = ["number\tconcept\tsentence\tstatus", "1\tmass\tThere is no MASS.\tNegated", "2\tcyst\tA CYST.\tAffirmed"]
    (tmp_path / "set.txt").write_text("\n".join([*lines, "3\tcyst\tNo CYST but pain.\tAffirmed"]))
    assert SCOPE.compute_negex_figures(tmp_path / "set.txt") == (1 / 2, 1.0, 2 / 3)
