"""The section `rollout`: every key reaches the engine, whoever makes one; an endpoint gets what is given."""

import json
from types import SimpleNamespace

import pytest
import torch

from tests.support.tables import each
from viewbox.configs.schema import parse
from viewbox.configs.sections import SamplingParams
from viewbox.engines.generator import Conversation
from viewbox.engines.hf import Settings
from viewbox.engines.models import check_for_endpoint
from viewbox.engines.table import get_engine
from viewbox.errors import ConfigError
from viewbox.rollouts.job import build_job
from viewbox.training.findings import describe_filters

OWN_KEYS = ("kv_cache_bytes", "tool_wait_timeout")
GIVEN = {
    "slots": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "repetition_penalty": 1.1, "stop": ["</answer>"],
    "max_reply_tokens": 20, "max_completion_tokens": 200, "prefill_tokens": 300, "kv_cache_bytes": "3MiB",
    "tool_wait_timeout": 2.5, "timeout": 60.0,
}  # fmt: skip


def of(**rollout):
    return parse({"model": {"name": "m"}, "env": {"name": "digits"}, "rollout": rollout})


ONLY = [  # a section, and the words of its refusal
    ({"engine": "vllm", "gpu_memory": 0.5, "url": "http://a"}, "gpu_memory = 0.5 is read with .* and no url only"),
    ({"gpu_memory": 0.5}, r"rollout\.gpu_memory = 0\.5 is read with engine: vllm only; the engine is 'hf'"),
    ({"url": "http://127.0.0.1:8000"}, r"rollout\.url = .* is read with engine: vllm only"),
    ({"engine": "sglang"}, r"rollout\.engine = 'sglang': unknown engine 'sglang'; allowed: hf, vllm"),
    ({"engine": 3}, r"rollout\.engine = 3; allowed: text"),
    ({"engine": "vllm", "slot": 3}, r"rollout\.slot: unknown key .* gpu_memory, .*did you mean 'slots'"),
    *(({"engine": "vllm", name: GIVEN[name]}, rf"rollout\.{name} = .* is read with engine: hf only")
      for name in OWN_KEYS),
]  # fmt: skip


@each("rollout, says", ONLY)
def test_a_key_that_the_engine_does_not_read_is_named_with_the_engine_that_does(rollout, says):
    with pytest.raises(ConfigError, match=says):
        of(**rollout)
    settings = of(engine="vllm", url="http://127.0.0.1:8000", kv_cache_bytes=None).rollout  # null takes it away
    assert settings.model_fields_set == {"engine", "url"}


def test_what_is_given_is_what_the_engine_has(qwen3):
    made = get_engine("hf").build(of(**GIVEN).rollout, qwen3.tokens, qwen3.model(), model_name="m")
    assert made.settings == Settings(**GIVEN)
    sampling = made.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 7)
    assert (sampling.repetition_penalty, sampling.stop, made.sampling) == (1.1, ("</answer>",), sampling)
    assert (made.kv_cache_bytes, made.scheduler.tool_wait_timeout) == (3 * 2**20, 2.5)
    assert (made.max_completion_tokens, made.run_config.model_name) == (200, "m")


def is_bf16():
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16


@pytest.mark.parametrize("temperature", [None, 0.0])
def test_training_and_held_out_evaluation_generate_with_the_section(temperature, monkeypatch, bf16_accelerator):
    from viewbox.training import run as module
    from viewbox.training.generation import Sampler

    asked = {}
    monkeypatch.setattr(module, "evaluate", lambda *a, **_: asked.update(sampler=a[2], bf16=is_bf16()) or ({}, []))
    config = of(**GIVEN)
    config = config.model_copy(update={"log": config.log.model_copy(update={"eval_temperature": temperature})})
    run = module.Run.__new__(module.Run)
    run.config, run.held_out, run.sampler = config, None, Sampler(None, config.rollout)
    run.interrupt = SimpleNamespace(requested=False, in_held_out_play=False)
    run.trainer = SimpleNamespace(accelerator=bf16_accelerator, model=torch.nn.Identity())
    run.evaluate(oracle=True)
    assert asked["bf16"]  # the precision of training
    given = GIVEN | ({} if temperature is None else {"temperature": temperature})
    assert asked["sampler"].rollout == Settings(**given)


def test_what_only_the_engine_has_is_refused_for_an_endpoint_and_a_filter_is_told_to_who_trains():
    for name in OWN_KEYS:
        with pytest.raises(ConfigError, match=rf"rollout\.{name} = .*: applies to a local model only; .* remove it"):
            check_for_endpoint(of(**{name: GIVEN[name]}).rollout)
    check_for_endpoint(of(kv_cache_bytes=None, prefill_tokens=7).rollout)
    assert describe_filters(SamplingParams(top_k=5), "sft") == []
    (note,) = describe_filters(SamplingParams(top_p=0.9, top_k=20), "grpo")
    assert note.startswith("rollout.top_p = 0.9, rollout.top_k = 20: episodes are sampled from a filtered distribution")
    assert describe_filters(SamplingParams(top_p=1.0, temperature=0.7), "grpo") == []


@each("rollout, sent", [
    ({}, {}), ({"stop": [], "prefill_tokens": 7}, {}), ({"temperature": 1.0, "max_reply_tokens": 9, "top_p": 1.0,
    "top_k": 0, "stop": ["x"]}, {"temperature": 1.0, "max_tokens": 9, "top_p": 1.0, "top_k": 0, "stop": ["x"]}),
])  # fmt: skip
def test_an_endpoint_is_asked_for_what_is_given_even_where_it_is_the_default(rollout, sent):
    overrides = [f"rollout.{name}={json.dumps(value)}" for name, value in rollout.items()]
    job = build_job(env="digits", model="m", endpoint="http://127.0.0.1:1", tasks=1, overrides=overrides)
    request = job.generator.build_request(Conversation([], (), 0, 0))
    assert request == {"model": "m", "messages": [], "seed": request["seed"]} | sent
