"""How the engine draws a token: its filters are those of transformers, and its log-probs the model's own."""

import pytest
import torch
from pydantic import ValidationError
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)  # fmt: skip

from tests.support.tables import each
from viewbox.configs.sections import SamplingParams
from viewbox.engines.hf.sampler import sample_tokens

LOGITS = torch.randn(3, 40, generator=torch.Generator().manual_seed(0)) * 3
DRAWS = 4001


def draw(logits, uniform, never=(), seen=None, **settings):
    return sample_tokens(SamplingParams(**settings), logits.clone(), uniform, never, seen)


def drawn(seen=None, **settings):
    """How often each token is drawn for the first row, over evenly spaced random numbers."""
    uniform = (torch.arange(DRAWS) + 0.5) / DRAWS
    many = LOGITS[:1].expand(DRAWS, -1)
    seen = None if seen is None else seen[:1].expand(DRAWS, -1)
    ids, _ = draw(many, uniform, (), seen, **settings)
    return torch.bincount(ids, minlength=LOGITS.shape[1]) / DRAWS


SAID = torch.tensor([[1, 2, 3, 30]])
SEEN = torch.zeros(1, LOGITS.shape[1], dtype=torch.bool).index_fill(1, SAID[0], True)
FILTERS = [
    ({"top_k": 5}, TopKLogitsWarper(5)), ({"top_p": 0.7}, TopPLogitsWarper(0.7)), ({"temperature": 0.5},
    TemperatureLogitsWarper(0.5)), ({"repetition_penalty": 1.8, "seen": SEEN}, RepetitionPenaltyLogitsProcessor(1.8)),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "warper"), FILTERS)
def test_a_filter_draws_what_that_of_transformers_would(settings, warper):
    expected = warper(SAID, LOGITS[:1].clone()).softmax(dim=-1)[0]
    assert torch.allclose(drawn(**settings), expected, atol=2 / DRAWS * 5)


@pytest.mark.parametrize("settings", [{"top_k": 2}, {"top_p": 0.1}, {"repetition_penalty": 2.0}])
def test_log_probs_are_the_models_own_before_any_filter(settings):
    seen = torch.ones(LOGITS.shape, dtype=torch.bool)
    ids, logps = draw(LOGITS, torch.full((3,), 0.3), (), seen, temperature=0.7, **settings)
    expected = torch.log_softmax(LOGITS / 0.7, dim=-1).gather(1, ids[:, None])[:, 0]
    assert torch.equal(logps, expected)


def test_greedy_takes_the_likeliest_that_is_allowed_and_what_is_never_drawn_is_not_though_it_were_certain():
    best = LOGITS.argmax(dim=-1)
    ids, _ = draw(LOGITS, torch.zeros(3), [int(best[0])], temperature=0)
    assert ids[0] == LOGITS[0].index_fill(0, best[:1], -torch.inf).argmax()
    logits = torch.zeros(1, 10)
    logits[0, 4] = 500
    for uniform in (0.0, 0.5, 1 - 1e-9):
        ids, _ = draw(logits, torch.tensor([uniform], dtype=torch.float64), [4])
        assert ids[0] != 4


@each("settings", [{"temperature": -1}, {"top_p": 0}, {"top_p": 1.5}, {"top_k": -1}, {"repetition_penalty": 0}])
def test_a_setting_out_of_range_is_an_error_that_names_it(settings):
    (name,) = settings
    with pytest.raises(ValidationError, match=name):
        SamplingParams(**settings)
