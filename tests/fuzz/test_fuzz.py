"""Each area runs and finds nothing."""

import pytest

from tests.fuzz.__main__ import AREAS, Fuzzer


@pytest.mark.timeout(300)
def test_a_few_cases_of_each_area_find_nothing(tmp_path):
    figures = Fuzzer(seed=1, jobs=2, seconds=240, cases=6, folder=tmp_path).run()
    assert figures["findings"] == []
    assert figures["cases"] == dict.fromkeys(AREAS, 6)
    assert figures["passed"]
