"""The memory of specialists: counted before a run, and given back between its phases."""

import asyncio

import pytest

import viewbox
from tests.support.served_models import forget_servers
from tests.support.specialist_env import Clinic, call, get_results
from tests.support.tables import each
from tests.support.tiny_specialists import save_vit
from viewbox.configs.schema import parse
from viewbox.errors import ConfigError
from viewbox.tools.specialists import build_specialists
from viewbox.tools.specialists.models.model import estimate_bytes
from viewbox.training.memory.forecast import predict
from viewbox.training.plan import Plan

GIB = 2**30


def make(folder, **spec):
    return {"kind": "classification", "model": str(folder), "device": "cpu", **spec}


@each("dtype, gpu", [("auto", False), ("float32", True), ("bfloat16", False), ("auto", True)])
def test_the_files_say_how_much_memory_the_weights_take_and_a_model_that_is_not_here_its_limit(tmp_path, dtype, gpu):
    forget_servers()
    (spec,) = build_specialists({"look": make(save_vit(tmp_path / "model"), dtype=dtype)}).values()
    server = spec.get_server(heads=())
    server.prepare()
    assert estimate_bytes(spec, gpu=gpu) == pytest.approx(server.runner.num_bytes, rel=0.01)
    absent = {"model": "nobody/no-such-model"}
    (spec,) = build_specialists({"look": make("", **absent, memory="1GiB")}).values()
    assert estimate_bytes(spec, gpu=True) == GIB
    (spec,) = build_specialists({"look": make("", **absent)}).values()
    with pytest.raises(ConfigError, match="its memory is not known; set memory"):
        estimate_bytes(spec, gpu=True)


def forecast(folder, **specs):
    raw = {
        "model": {"name": "package:tiny_viewer", "dtype": "float32"},
        "env": {"name": "digits", "specialists": {name: make(folder, **spec) for name, spec in specs.items()}},
        "rollout": {"slots": 2, "max_reply_tokens": 16, "max_completion_tokens": 64},
        "train": {"method": "grpo", "max_steps": 1, "num_generations": 2, "per_device_train_batch_size": 2},
    }
    return {phase.name: phase.parts for phase in predict(Plan(parse(raw)), GIB).phases}


def test_viewbox_memory_counts_each_model_once_and_not_where_it_is_offloaded(tmp_path):
    folder = save_vit(tmp_path)
    (spec,) = build_specialists({"look": make(folder, device="auto")}).values()
    size = estimate_bytes(spec, gpu=True)
    parts = forecast(folder, one={"device": "auto"}, two={"device": "auto", "top_k": 1})
    assert {name: one["specialists"] for name, one in parts.items()} == {"generation": size, "update": size}
    parts = forecast(folder, one={"device": "auto", "offload": True})
    assert parts["generation"]["specialists"] == size
    assert "specialists" not in parts["update"]
    parts = forecast(folder, one={"device": "cpu"})
    assert not any("specialists" in one for one in parts.values())


def test_an_environment_rests_and_the_next_episodes_wake_its_models(tmp_path, monkeypatch):
    env = Clinic(specialists={"look": make(save_vit(tmp_path), offload=True)})
    (before,) = get_results(env, call("look"))
    server, moves = env.toolbox["look"].function.server, []
    for name in ("release", "wake"):
        monkeypatch.setattr(server.runner, name, lambda name=name: moves.append(name))
    env.release()
    assert moves == ["release"]

    async def play():
        policy = viewbox.ScriptedPolicy([call("look"), "done"])
        return [episode async for episode in viewbox.play_many(env, env.tasks[:2], policy)]

    episodes = asyncio.run(play())
    assert moves == ["release", "wake"]
    assert before.facts in [episode.turns[2].tool_results[0].facts for episode in episodes]
