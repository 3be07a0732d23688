"""The section `rollout`: every key reaches the engine, whoever makes one; an endpoint gets what is given."""

import inspect
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from viewbox.configs.schema import parse
from viewbox.configs.sections import RolloutSection, SamplingParams
from viewbox.engines.generator import Conversation
from viewbox.engines.hf.engine import HFGenerator
from viewbox.engines.openai.client import OpenAIGenerator
from viewbox.envs.from_config import (
    build_endpoint_settings,
    build_engine_settings,
    build_vllm_settings,
    describe_filters,
)
from viewbox.errors import ConfigError

GIVEN = {
    "slots": 3,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 7,
    "repetition_penalty": 1.1,
    "stop": ["</answer>"],
    "max_reply_tokens": 20,
    "max_completion_tokens": 200,
    "prefill_tokens": 300,
    "kv_cache_bytes": "3MiB",
    "tool_wait_timeout": 2.5,
    "cuda_graphs": True,
    "timeout": 60.0,
}


def of(**rollout):
    return parse({"model": {"name": "m"}, "env": {"name": "digits"}, "rollout": rollout})


def test_every_key_but_the_drivers_is_an_argument_of_the_engine():
    of_servers = {"engine", "url", "gpu_memory"}
    assert GIVEN.keys() == RolloutSection.model_fields.keys() - of_servers
    own = RolloutSection.model_fields.keys() - SamplingParams.model_fields.keys() - {"timeout"} - of_servers
    assert build_engine_settings(of()).keys() == own | {"sampling", "model_name"}
    assert build_engine_settings(of()).keys() <= inspect.signature(HFGenerator).parameters.keys()


@pytest.mark.parametrize(
    ("rollout", "says"),
    [
        ({"gpu_memory": 0.5}, "gpu_memory = 0.5 is read with engine: vllm and no url only"),
        ({"url": "http://127.0.0.1:8000"}, "read with engine: vllm only"),
        ({"engine": "sglang"}, "allowed: 'hf' or 'vllm'"),
    ],
)
def test_an_engine_that_cannot_be_asked_is_named(rollout, says):
    with pytest.raises(ConfigError, match=says):
        of(**rollout)


@pytest.mark.parametrize("setting", ["kv_cache_bytes", "tool_wait_timeout", "cuda_graphs"])
def test_a_vllm_server_is_given_no_setting_of_our_engine(setting):
    config = of(engine="vllm", url="http://127.0.0.1:8000", **{setting: GIVEN[setting]})
    with pytest.raises(ConfigError, match=rf"rollout\.{setting} = .* a server decides this"):
        build_vllm_settings(config)


def test_where_nothing_is_given_the_engine_has_its_own_defaults():
    defaults = {name: one.default for name, one in inspect.signature(HFGenerator).parameters.items()}
    settings = build_engine_settings(of())
    assert {name: defaults[name] for name in settings} == settings | {"model_name": ""}


def test_what_is_given_is_what_the_engine_has(qwen3):
    made = HFGenerator(qwen3.model(), qwen3.tokens, **build_engine_settings(of(**GIVEN)))
    sampling = made.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 7)
    assert (sampling.repetition_penalty, sampling.stop, made.slots) == (1.1, ("</answer>",), 3)
    assert (made.max_reply_tokens, made.max_completion_tokens, made.prefill_tokens) == (20, 200, 300)
    assert (made.kv_cache_bytes, made.scheduler.tool_wait_timeout, made.run_config.model_name) == (3 * 2**20, 2.5, "m")


def is_bf16():
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16


@pytest.fixture
def bf16_accelerator():
    """Its precision is that of the process, in which other tests may have made others."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield Accelerator(cpu=True, mixed_precision="bf16")
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("temperature", [None, 0.0])
def test_training_and_held_out_evaluation_generate_with_the_section(temperature, monkeypatch, bf16_accelerator):
    from viewbox.training import held_out as module

    asked = {}
    monkeypatch.setattr(module, "evaluate", lambda *a, **k: asked.update(k["generation"], bf16=is_bf16()) or ({}, []))
    config = of(**GIVEN)
    config = config.model_copy(update={"log": config.log.model_copy(update={"eval_temperature": temperature})})
    trainer = SimpleNamespace(accelerator=bf16_accelerator, model=torch.nn.Identity())
    module.HeldOutTasks(config, None, None, None, trainer).evaluate(oracle=True)
    assert asked.pop("bf16")  # the precision of training
    assert asked["sampling"].temperature == (0.5 if temperature is None else temperature)
    assert asked | {"sampling": config.rollout.sampling} == build_engine_settings(config)


def settings_sent(**rollout):
    """What an endpoint is asked for, the sampling settings as a dict."""
    settings = build_endpoint_settings(of(**rollout))
    return settings | {"sampling": settings["sampling"].model_dump(exclude_unset=True)}


def test_an_endpoint_is_asked_for_nothing_that_is_not_given():
    assert settings_sent() == {"sampling": {}}
    assert settings_sent(stop=[], kv_cache_bytes=None, prefill_tokens=7) == {"sampling": {"stop": ()}}
    url = "http://127.0.0.1:1"
    request = OpenAIGenerator(url, "m", **build_endpoint_settings(of(stop=[]))).build_request(
        Conversation([], (), 0, 0)
    )
    assert request.keys() == {"model", "messages", "seed"}


def test_an_endpoint_is_asked_for_what_is_given_even_where_it_is_the_default():
    sent = settings_sent(temperature=1.0, max_reply_tokens=9, top_p=1.0, top_k=0, stop=["x"])
    assert sent == {"max_tokens": 9, "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "stop": ("x",)}}


@pytest.mark.parametrize("given", [{"kv_cache_bytes": 4096}, {"tool_wait_timeout": 1.0}, {"cuda_graphs": True}])
def test_what_only_the_engine_has_is_refused_for_an_endpoint(given):
    (name,) = given
    with pytest.raises(ConfigError, match=rf"rollout\.{name} = .*: applies to a local model only; .* remove it"):
        build_endpoint_settings(of(**given))


def test_who_trains_with_a_filter_is_told_once_what_it_does():
    (note,) = describe_filters(of(top_p=0.9, top_k=20))
    assert note.startswith("rollout.top_p = 0.9, rollout.top_k = 20: episodes are sampled from a filtered distribution")
    assert describe_filters(of(top_p=1.0, temperature=0.7)) == []


def test_a_warm_start_is_told_nothing_of_filters():
    train = {"method": "sft", "episodes": "x"}
    config = parse({"model": {"name": "m"}, "env": {"name": "digits"}, "train": train, "rollout": {"top_k": 5}})
    assert describe_filters(config) == []
