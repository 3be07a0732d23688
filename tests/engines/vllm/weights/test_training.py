"""GRPO whose episodes a server generates: it has the new weights at every step, whatever happens to it."""

import pytest
import torch
from peft import LoraConfig

from tests.support.grpo_kit import make_trainer, train_and_read_steps
from tests.support.servers import hang_up
from tests.support.vllm_server import TrainedVLLM
from viewbox.engines.generator import GeneratorError
from viewbox.engines.vllm import Settings
from viewbox.engines.vllm.vllm import VLLMGenerator
from viewbox.engines.vllm.weights import WeightSender
from viewbox.errors import ModelError
from viewbox.rollouts.store.reader import load
from viewbox.training.generation import Sampler
from viewbox.training.held_out import evaluate

PARITY = 1e-5
WORST = "sampling/logp_difference/max"
LORA = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")
SMALL = {"learning_rate": 5e-3, "per_device_train_batch_size": 4, "num_generations": 2}


@pytest.fixture
def served(qwen3):
    """A server that starts with other weights than the trainer."""
    return TrainedVLLM(qwen3.model(seed=7), qwen3.processor)


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """A request that fails is soon given up."""
    monkeypatch.setitem(VLLMGenerator.__init__.__kwdefaults__, "attempts", 2)
    monkeypatch.setitem(VLLMGenerator.__init__.__kwdefaults__, "first_pause", 0.01)


async def find_model():
    return "policy"


@pytest.fixture
def make(qwen3, looking, tmp_path):
    """Makes a trainer on a server."""

    def run(url, folder=tmp_path, *, wait=10.0, sleeps=False, **given):
        sender = WeightSender(url, tmp_path / "weights", find_model, wait=wait, pause=0.05, sleeps=sleeps)
        generation = {"engine": "vllm", "max_reply_tokens": 4, "timeout": 60.0}
        own = {"weights": sender, "importance_sampling_cap": 2.0, "model_name": "m"}
        return make_trainer(qwen3, folder, looking(), generation=generation, own=own, **SMALL | given)

    return run


@pytest.fixture
def train(make, tmp_path):
    """Trains on a server; returns the metrics of every step, and the trainer."""

    def run(url, **given):
        trainer = make(url, **given)
        return train_and_read_steps(trainer, tmp_path), trainer

    return run


def test_each_step_samples_with_the_weights_after_the_step_before(train, served):
    with served.serve() as server:
        steps, trainer = train(server.url, peft_config=LORA)
    assert len(steps) == 3
    assert all(step["grad_norm"] > 0 for step in steps[:2])
    for step in steps:
        assert step[WORST] <= PARITY
        assert step["episodes/faults"] == 0
        assert step["sampling/importance_ratio/max"] == pytest.approx(1.0, abs=1e-4)
    assert trainer.player.weights.num_sent == served.calls.count("/finish_weight_update") == 3


def test_a_server_that_shares_the_gpu_sleeps_whenever_no_episode_is_played(train, served):
    """Wake, weights, empty caches, episodes, sleep: asleep, the stand-in takes no weights and gives no reply."""
    with served.serve() as server:
        steps, trainer = train(server.url, sleeps=True)
    assert all(step["episodes/faults"] == 0 and step[WORST] <= PARITY for step in steps)
    assert trainer.player.weights.num_sent == 3
    assert [step["episodes/played"] for step in steps] == [4] * 3
    calls = "".join(" " + path for path in served.calls if "init" not in path)
    update = " /wake_up /pause?mode=wait /start_weight_update /update_weights /finish_weight_update"
    update += " /reset_prefix_cache /reset_mm_cache /reset_encoder_cache /resume /sleep?level=1"
    assert calls == update * 3
    assert served.is_asleep


def test_a_server_that_keeps_its_own_weights_ends_a_run_with_the_difference(train, served):
    served.keeps_weights = True
    with served.serve() as server, pytest.raises(ModelError, match=r"log-probs of the first batch differ by \d"):
        train(server.url)


@pytest.mark.parametrize("trouble", ["killed", "restarted"])
def test_a_server_in_trouble_costs_its_episodes_and_the_run_goes_on(train, served, qwen3, tmp_path, trouble):
    """The second generation finds a server that hangs up, or has lost its weights."""
    again = TrainedVLLM(qwen3.model(seed=7), qwen3.processor)
    with served.serve() as server:
        whole = server.answer

        def answer(body, number):
            if served.calls.count("/finish_weight_update") != 2:
                return whole(body, number)
            if trouble == "restarted":  # it answers with the weights that it was started with
                server.answer = lambda body, number: again.generate(body)
                server.by_path |= again.get_more_paths()
                return again.generate(body)
            return hang_up

        server.answer = answer
        steps, _ = train(server.url)
    assert len(steps) == 3
    assert [step["episodes/faults"] > 0 for step in steps] == [False, True, False]
    assert all(step[WORST] <= PARITY for step in steps if step["episodes/faults"] == 0)
    assert all(step.get(WORST) is None or not step[WORST] > PARITY for step in steps)
    ended = {episode.info["step"]: set() for episode in load(tmp_path / "episodes")}
    for episode in load(tmp_path / "episodes"):
        ended[episode.info["step"]].add(episode.end_reason)
    assert ended[2] <= {"error", "timeout"}
    if trouble == "restarted":
        assert again.calls[0] == "/init_weight_transfer_engine"


def test_held_out_tasks_are_played_on_the_server_with_the_policys_weights(qwen3, strips, served, tmp_path):
    model = qwen3.model()
    with served.serve() as server:
        sender = WeightSender(server.url, tmp_path, find_model)
        settings = Settings(engine="vllm", max_reply_tokens=8, max_completion_tokens=200, slots=4)
        _, episodes = evaluate(strips, model, Sampler(qwen3.tokens, settings, weights=sender), tasks=2, seed=0)
    assert torch.equal(served.model.lm_head.weight, model.lm_head.weight)
    assert [episode.end_reason != "error" for episode in episodes] == [True, True]


def test_a_server_that_is_gone_for_good_leaves_a_checkpoint_to_go_on_from(qwen3, make, served, tmp_path):
    given = {"wait": 0.3, "save_strategy": "steps", "save_steps": 100}
    with served.serve() as server:
        whole = make(server.url, tmp_path / "whole", **given)
        whole.train()
    served = TrainedVLLM(qwen3.model(seed=7), qwen3.processor)
    with served.serve() as server:
        trainer = make(server.url, tmp_path / "cut", **given)
        original, url, port = trainer.player.play, server.url, server.server_port

        def play(model, env, tasks, step, *rest):
            if step == 3:
                server.kill()
            return original(model, env, tasks, step, *rest)

        trainer.player.play = play
        with pytest.raises(GeneratorError, match="can be resumed"):
            trainer.train()
    checkpoint = trainer.save_unsaved()
    assert checkpoint.name == "checkpoint-2"
    assert trainer.save_unsaved() is None
    again = TrainedVLLM(qwen3.model(seed=7), qwen3.processor)
    with again.serve(port):
        resumed = make(url, tmp_path / "cut", **given)
        resumed.train(str(checkpoint))
    for (name, weight), other in zip(resumed.model.named_parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(weight, other), name
