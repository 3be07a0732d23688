"""The normal form of a value: what is one value, what is another, and that reading it takes linear time."""

import itertools
import time

import pytest

from tests.support.tables import each
from viewbox.utils.conditions import parse_condition
from viewbox.utils.values import identify, normalize, reaches, read_number

SAME = [  # spellings of one value
    ("<5 mm", "< 5 mm", "<5mm", "<5.0 MM", "＜5㎜"), ("≤5", "<=5", "≤ 5.00"), ("±0.5", "+/- 0.5", "+/-.5"),
    ("5 ± 1", "5±1", "5 +/- 1"), ("28%", "28 %", "28.0%", "28 percent", "28％", "(28 %)"), ("5‰", "5 ‰"),
    ("-7", "− 7", "–7.0", "(-7)", "**-7**"), ("12000", "12,000", "12,000.0", "1.2e4", "1.2 × 10⁴"),
    ("10⁻³", "10^-3", "0.001", "1e-3"), ("0.1", ".10", "0.1000", str(0.1 + 0.2 - 0.2)),
    ("Rh+", "Rh +", "Rh (+)", "RH⁺", "Rh+."), ("HER2-", "HER2 (–)", "her2⁻", "HER2 −"),
    ("↑CRP", "CRP ↑", "CRP↑", "⬆ CRP"), ("↑CRP ↓WBC", "CRP ↑ WBC ↓", "CRP↑ WBC↓"),
    ("37 °C", "37°C", "37 ° C", "37ºC", "37 ℃"), ("5 x 3 mm", "5×3 mm", "5x3mm"), ("5-10", "5 - 10", "5–10"),
    ("pleural_effusion", "pleural effusion", "Pleural Effusion."), ("true", "TRUE", "Yes", "yes.", True),
    ("false", "no", False), ("2½", "2 1/2"), ("Ⅳ", "IV"),
    ("B) right lung", "(B) right lung", "B. right lung", "b: right lung", "B - right lung", "[B] right lung"),
]  # fmt: skip
OTHER = [  # each is another value
    ("5", "<5", ">5", "<=5", ">=5", "~5", "±5", "-5", "5%", "5‰", "5 mm", "5 cm", "5+", "5-"), ("007", "7", "07"),
    ("102", "10²", "10-2", "10⁻²", "8₂", "82"), ("1,5", "15", "1.5", "1.234,5"), ("Rh+", "Rh-", "Rh", "Rh±"),
    ("↑CRP", "↓CRP", "CRP"), ("A right lung", "A. right lung", "B. right lung", "right lung", "A"),
    ("pleural-effusion", "pleural effusion"), ("1_000", "1000", "1 000"), ("7th", "7", "8th"),
]  # fmt: skip


def test_spellings_of_one_value_have_one_form_others_have_others_and_the_form_of_a_form_is_itself():
    for spellings in SAME:
        assert len({normalize(one).text for one in spellings}) == 1, {one: normalize(one).text for one in spellings}
    for one, other in itertools.chain(*(itertools.combinations(values, 2) for values in OTHER)):
        assert normalize(one).text != normalize(other).text, (one, other)
    for value in itertools.chain(*SAME, *OTHER):
        form = normalize(value)
        assert normalize(form.text).text == form.text
        assert identify(identify(value)) == identify(value)


def test_numbers_of_texts_and_a_bound_that_is_reached_but_for_rounding():
    assert [read_number(text) for text in ("7.50", "12,000", "1e3", "-0")] == [7.5, 12000, 1000, 0]
    assert {read_number(text) for text in ("5 mm", "<5", "007", "1,5", "yes", "", "1_000", "9" * 70)} == {None}
    assert reaches(0.1 + 0.2, 0.3)
    assert reaches(0.3, 0.1 + 0.2)
    assert not reaches(0.29999, 0.3)


UNITS = ["a", "1", "-", "_", ",", "1,000,", "(", "- ", "< ", "1x", "a↑", "a ↑", "+/-", "10^", "²", "½", "\u0315\u0300",
         "ﷺ", ".5", "B) ", " %", "°", "a- and ", "~5 ", "__ ", "\u3164"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_reading_a_long_text_takes_linear_time():
    for unit, end in itertools.product(UNITS, ("", "!", "7", "0" * 1000 + "x")):
        text = (unit * (2**16 // len(unit)))[: 2**16] + end
        for read in (normalize, identify, read_number):
            started = time.process_time()
            read(text)
            assert time.process_time() - started < 2, (read, unit, end)  # quadratic: more than 10 seconds


@each("text, met, missed", [
    ("x=7", (7, 7.0, "7", " 7 ", "7.0", [1, 7], (7,)), ("007", "7.10", "70", True, None, [])),
    ("x=1.10", ("1.10", 1.1), ("1.1", "1.100")),
    ("x=true", (True, "TRUE", "True", "true"), (1, "yes", False, None)),
    ("x=null", (None, float("nan"), "", " "), (0, False, "nan", [])), ("x='null'", ("null",), (None, "")),
    ("x!=7|null", (8, "8", "007"), (7, "7", 7.0, None, float("nan"))),
    ("x>=2", (2, "2", "2.0", "1e3", [1, 3]), ("1", "two", None, "", True, "2 mm", "<3")),
    ("x=a b", ("a b", " a  b "), ("A b", "ab")),
])  # fmt: skip
def test_a_condition_compares_names_and_numbers(text, met, missed):
    test = parse_condition(text, "", "").test
    assert [value for value in met if not test(value)] == []
    assert [value for value in missed if test(value)] == []
