"""The section `rollout`: every key reaches the engine, whoever makes one; an endpoint gets what is given."""

import inspect

import pytest

from viewbox.configs.schema import RolloutSection, parse
from viewbox.errors import ConfigError
from viewbox.rollouts.engine.engine import HFGenerator
from viewbox.rollouts.from_config import endpoint_settings, engine_settings, notes

GIVEN = {
    "slots": 3,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 7,
    "min_p": 0.05,
    "repetition_penalty": 1.1,
    "stop": ["</answer>"],
    "max_reply_tokens": 20,
    "max_completion_tokens": 200,
    "prefill_tokens": 300,
    "kv_bytes": "3MiB",
    "patience": 2.5,
    "time_limit": 60.0,
}


def of(**rollout):
    return parse({"model": {"name": "m"}, "env": {"name": "digits"}, "rollout": rollout})


def test_every_key_but_the_drivers_is_an_argument_of_the_engine():
    assert GIVEN.keys() == RolloutSection.model_fields.keys()
    assert engine_settings(of()).keys() == RolloutSection.model_fields.keys() - {"time_limit"} | {"model_name"}
    assert engine_settings(of()).keys() <= inspect.signature(HFGenerator).parameters.keys()


def test_where_nothing_is_given_the_engine_has_its_own_defaults():
    defaults = {name: one.default for name, one in inspect.signature(HFGenerator).parameters.items()}
    settings = engine_settings(of()) | {"stop": ()}
    assert {name: defaults[name] for name in settings} == settings | {"model_name": ""}


def test_what_is_given_is_what_the_engine_has(qwen3):
    made = HFGenerator(qwen3.model(), qwen3.tokens, **engine_settings(of(**GIVEN)))
    sampling = made.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 7, 0.05)
    assert (sampling.repetition_penalty, made.stop, made.slots) == (1.1, ("</answer>",), 3)
    assert (made.max_reply_tokens, made.max_completion_tokens, made.prefill_tokens) == (20, 200, 300)
    assert (made.kv_bytes, made.patience, made.run_config.model_name) == (3 * 2**20, 2.5, "m")


@pytest.mark.parametrize("temperature", [None, 0.0])
def test_training_and_held_out_evaluation_generate_with_the_section(temperature, monkeypatch):
    from viewbox.training import run as module

    asked = {}
    monkeypatch.setattr(module, "evaluate", lambda *a, generation, **k: asked.update(generation) or ({}, []))
    config = of(**GIVEN)
    run = module.Run.__new__(module.Run)
    run.config = config.model_copy(update={"log": config.log.model_copy(update={"eval_temperature": temperature})})
    run.held_out = run.model = run.tokens = None
    assert run.generation() == engine_settings(config)
    run.evaluate()
    assert asked == engine_settings(config, temperature=0.5 if temperature is None else temperature)


def test_an_endpoint_is_asked_for_nothing_that_is_not_given():
    assert endpoint_settings(of()) == {"sampling": {}}
    assert endpoint_settings(of(stop=[], kv_bytes=None, prefill_tokens=7)) == {"sampling": {}}


def test_an_endpoint_is_asked_for_what_is_given_even_where_it_is_the_default():
    found = endpoint_settings(of(temperature=1.0, max_reply_tokens=9, top_p=1.0, top_k=0, stop=["x"]))
    assert found == {"temperature": 1.0, "max_tokens": 9, "sampling": {"top_p": 1.0, "top_k": 0, "stop": ["x"]}}


@pytest.mark.parametrize("given", [{"kv_bytes": 4096}, {"patience": 1.0}])
def test_what_only_the_engine_has_is_refused_for_an_endpoint(given):
    (name,) = given
    with pytest.raises(ConfigError, match=rf"rollout\.{name} = .*: is about a local model; .* leave it out"):
        endpoint_settings(of(**given))


def test_who_trains_with_a_filter_is_told_once_what_it_does():
    (note,) = notes(of(top_p=0.9, min_p=0.1))
    assert note.startswith("rollout.top_p = 0.9, rollout.min_p = 0.1: episodes are sampled from other probabilities")
    assert notes(of(top_p=1.0, temperature=0.7)) == []


def test_a_warm_start_is_told_nothing_of_filters():
    train = {"method": "sft", "episodes": "x"}
    config = parse({"model": {"name": "m"}, "env": {"name": "digits"}, "train": train, "rollout": {"top_k": 5}})
    assert notes(config) == []
