"""The number of threads is measured, given, or left as the environment has it."""

import time
from types import SimpleNamespace

import pytest
import torch

from tests.support.tables import each
from viewbox.engines.processes import choose_threads


class Model(torch.nn.Module):
    """Takes so many milliseconds with so many threads."""

    device = torch.device("cpu")

    def __init__(self, milliseconds):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))
        self.milliseconds, self.asked = milliseconds, []

    def forward(self, input_ids):
        self.asked.append(torch.get_num_threads())
        time.sleep(self.milliseconds[torch.get_num_threads()] / 1000)


@pytest.fixture(autouse=True)
def four_threads(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@each("milliseconds, best", [({1: 10, 2: 100, 4: 300}, 1), ({1: 60, 2: 30, 4: 15}, 4), ({1: 40, 2: 40, 4: 40}, 1)])
def test_the_fastest_number_is_taken_and_without_gain_the_fewest(milliseconds, best, monkeypatch):
    torch.set_num_threads(4)
    monkeypatch.setattr("viewbox.engines.processes.SECONDS", 0.2)
    assert choose_threads(Model(milliseconds)).startswith(f"{best} of 4: a forward takes ")
    assert torch.get_num_threads() == best
    model = Model({1: 1, 2: 1, 3: 1})
    torch.set_num_threads(3)
    choose_threads(model)
    assert model.asked[:7] == [1, 1, 2, 3, 1, 2, 3]  # in turn, so that a busy moment hits all


@pytest.mark.parametrize("why", ["given", "OMP_NUM_THREADS", "one thread", "a GPU"])
def test_nothing_is_measured_where_a_number_is_given_or_there_is_nothing_to_choose(why, monkeypatch):
    model = SimpleNamespace(device=torch.device("cuda")) if why == "a GPU" else Model({})
    if why == "OMP_NUM_THREADS":
        monkeypatch.setenv("OMP_NUM_THREADS", "4")
    elif why == "one thread":
        torch.set_num_threads(1)
    before = torch.get_num_threads()
    assert choose_threads(model, *([3] if why == "given" else [])) == ("3, as given" if why == "given" else None)
    assert torch.get_num_threads() == (3 if why == "given" else before)
