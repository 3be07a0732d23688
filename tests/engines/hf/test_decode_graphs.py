"""Decode steps in buckets, with everything but the recording itself, which needs a GPU."""

import logging

import pytest
import torch

from viewbox.engines.hf import decode_graphs
from viewbox.engines.hf.decode_graphs import choose_recorder

TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch):
    monkeypatch.setattr(decode_graphs, "COLUMN_BUCKET", 64)


@pytest.fixture
def bucketed(qwen3):
    """A generator whose decode steps go through the buffers of `DecodeGraphs`; `record` stands for the recording."""

    def build(record, model=None, **settings):
        generator = qwen3.generator(model, slots=5, **settings)
        generator.record = record
        generator._create_cache()
        return generator

    return build


def repeat(step):
    """What a graph does: it runs the step on the same buffers."""
    return step


def watch_graphs(generator):
    """The `DecodeGraphs` of a generator; closing or failing makes new ones, so they are kept here."""
    return generator.runner.graphs


def test_episodes_are_those_of_steps_without_buckets(qwen3, played, bucketed, play_mixed, measure_mismatch):
    model, plain = played(qwen3)
    generator = bucketed(repeat, model)
    graphs = watch_graphs(generator)
    episodes = play_mixed(generator)
    assert graphs.problem is None
    assert graphs.num_replayed > generator.stats.steps / 5
    assert [e.tokens.completion_ids for e in episodes] == [e.tokens.completion_ids for e in plain]
    for one, other in zip(episodes, plain, strict=True):
        torch.testing.assert_close(
            torch.tensor(one.tokens.logprobs), torch.tensor(other.tokens.logprobs), atol=TOLERANCE, rtol=0
        )
    assert measure_mismatch(model, qwen3, episodes) <= TOLERANCE


def test_shapes_repeat_and_the_cache_stays_where_it_is(bucketed, play_mixed):
    shapes, places = set(), set()
    generator = bucketed(lambda step: lambda: (step(), shapes.add(step.args[0])))
    list_tensors = generator.cache.list_tensors
    generator.cache.list_tensors = lambda: [places.add(t.data_ptr()) or t for t in list_tensors()]
    play_mixed(generator, tasks=2)
    layers = generator.model.config.get_text_config().num_hidden_layers
    assert len(places) == 2 * layers
    assert {slots for slots, _ in shapes} <= {1, 2, 4, 5}
    assert all(columns % 64 == 0 or columns == generator.cache.index.capacity for _, columns in shapes)


def keep_inputs(step):
    """A recording that repeats the inputs it was made with."""
    graphs = step.func.__self__
    ids = graphs._ids.clone()

    def replay():
        current = graphs._ids.clone()
        graphs._ids.copy_(ids)
        step()
        graphs._ids.copy_(current)

    return replay


def write_elsewhere(step):
    """A recording that does not write the cache."""
    graphs = step.func.__self__

    def replay():
        before = [tensor.clone() for tensor in graphs.cache.list_tensors()]
        step()
        for tensor, old in zip(graphs.cache.list_tensors(), before, strict=True):
            tensor.copy_(old)

    return replay


def do_nothing(step):
    return lambda: None


def run_out_of_memory(step):
    raise RuntimeError("less than 1 GiB of the GPU's memory is free")


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (keep_inputs, "differs"),
        (write_elsewhere, "differs"),
        (do_nothing, "differs"),
        (run_out_of_memory, "less than 1 GiB"),
    ],
)
def test_a_replay_that_is_wrong_is_found_and_said_and_plain_steps_go_on(
    qwen3, played, bucketed, play_mixed, measure_mismatch, caplog, record, words
):
    model, plain = played(qwen3)
    generator = bucketed(record, model)
    graphs = watch_graphs(generator)
    with caplog.at_level(logging.WARNING, "viewbox.engine"):
        episodes = play_mixed(generator)
    assert words in graphs.problem
    (said,) = [r.getMessage() for r in caplog.records if "cuda_graphs" in r.getMessage()]
    assert words in said
    assert said.endswith("decode steps run one operation at a time")
    assert graphs.num_replayed == 0
    assert [e.tokens.completion_ids for e in episodes] == [e.tokens.completion_ids for e in plain]
    assert measure_mismatch(model, qwen3, episodes) <= TOLERANCE


def test_graphs_are_dropped_when_weights_move(bucketed, play_mixed, qwen3, measure_mismatch):
    model = qwen3.model()
    generator = bucketed(repeat, model)
    graphs = watch_graphs(generator)
    play_mixed(generator, tasks=2)
    assert graphs._replays
    for weight in model.model.language_model.parameters():
        weight.data = weight.data * 0.5
    graphs._check_addresses()
    assert not graphs._replays
    assert measure_mismatch(model, qwen3, play_mixed(generator, tasks=2)) <= TOLERANCE


def test_under_autocast_steps_are_plain_ones(bucketed, play_mixed, caplog):
    generator = bucketed(repeat)
    graphs = watch_graphs(generator)
    with torch.autocast("cpu", dtype=torch.bfloat16), caplog.at_level(logging.WARNING, "viewbox.engine"):
        play_mixed(generator, tasks=1)
    assert "autocast" in graphs.problem


def test_without_a_gpu_there_are_no_graphs_and_a_sentence_says_so(qwen3, caplog):
    with caplog.at_level(logging.WARNING, "viewbox.engine"):
        assert qwen3.generator(cuda_graphs=True).runner.graphs is None
    assert "there is no GPU" in caplog.text
    assert choose_recorder(False, torch.device("cpu")) is None
