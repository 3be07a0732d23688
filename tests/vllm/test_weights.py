"""A real vLLM takes the trainer's weights: before every step, and after it was killed, hung or restarted."""

import os
import signal
import threading
import time

import httpx
import pytest
import torch

from tests.support.grpo_kit import make_trainer, train_and_read_steps
from viewbox.configs.sections import ModelSection
from viewbox.engines.hf import loading
from viewbox.engines.vllm import Settings
from viewbox.engines.vllm import weights as sending
from viewbox.engines.vllm.vllm import Served, VLLMGenerator
from viewbox.engines.vllm.weights import HEAD, WeightSender, iterate_weights
from viewbox.rollouts.job import build_job

TOLERANCE = 5e-5
WORST = "sampling/logp_difference/max"


@pytest.fixture(scope="module")
def digits():
    """The environment of the quickstart."""
    return build_job(config="quickstart", model="package:tiny_viewer", tasks=64).env


@pytest.fixture
def make(digits, tmp_path):
    """A trainer of the shipped model that generates on a server."""

    def build(server, sleeps=False, **given):
        section = ModelSection(name="package:tiny_viewer", dtype="float32")
        _, processor = loading.load_processor(section)
        loading.set_max_pixels(processor, digits.max_pixels)

        async def check():
            checked = VLLMGenerator(Served(server.url), trainer.tokens, Settings(engine="vllm"))
            try:
                return await checked.check()
            finally:
                await checked.close()

        sender = WeightSender(server.url, tmp_path / "weights", check, wait=400.0, pause=0.5, sleeps=sleeps)
        trainer = make_trainer(
            None,
            tmp_path,
            digits,
            model=loading.load_model(section),
            processor=processor,
            generation={"engine": "vllm", "slots": 16, "max_reply_tokens": 40, "timeout": 20.0},
            own={"weights": sender, "importance_sampling_cap": 2.0, "model_name": "tiny"},
            **{"per_device_train_batch_size": 16, "num_generations": 8, "learning_rate": 1e-3} | given,
        )
        return trainer

    return build


def test_ten_steps_with_new_weights_at_each_are_sampled_with_them(server, make, tmp_path):
    trainer = make(server, max_steps=10)
    start = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    steps = train_and_read_steps(trainer, tmp_path)
    assert len(steps) == 10
    assert trainer.player.weights.num_sent == 10
    moved = max((weight - start[name]).abs().max().item() for name, weight in trainer.model.state_dict().items())
    assert moved > 1e-3
    assert all(step["episodes/faults"] == 0 for step in steps)
    assert max(step[WORST] for step in steps) <= TOLERANCE


def test_a_server_takes_sleep_and_wake_between_generations(server, make, tmp_path):
    """On a processor no memory is freed, but vLLM's scheduler stops at `/sleep`, and goes on at `/wake_up`."""
    steps = train_and_read_steps(make(server, sleeps=True, max_steps=3), tmp_path)
    assert len(steps) == 3
    assert all(step["episodes/faults"] == 0 and step[WORST] <= TOLERANCE for step in steps)
    ask = lambda method, path: httpx.request(method, server.url + path, timeout=60.0, trust_env=False)  # noqa: E731
    assert ask("GET", "/is_sleeping").json() == {"is_sleeping": True}
    assert ask("POST", "/wake_up").status_code == 200
    assert ask("GET", "/is_sleeping").json() == {"is_sleeping": False}


def test_a_head_that_is_not_sent_stays_the_old_one_without_an_error(server, make, monkeypatch):
    """Why the head is sent although it is tied to the embedding; if this fails, vLLM ties it by itself."""
    trainer = make(server, max_steps=1)
    with torch.no_grad():  # new weights: going back to those that the server began with would hide it
        trainer.model.get_input_embeddings().weight.mul_(1.05)

    def measure():
        batch = trainer._generate_and_score_completions([{"task": n // 8, "prompt": ""} for n in range(16)])
        gap = (batch["old_per_token_logps"] - batch["sampling_per_token_logps"]).abs()
        return (gap * batch["tool_mask"]).max().item()

    trainer.model.train()
    assert measure() <= TOLERANCE
    with torch.no_grad():
        trainer.model.get_input_embeddings().weight.mul_(1.05)
    without = lambda *given: ((name, tensor) for name, tensor in iterate_weights(*given) if name != HEAD)  # noqa: E731
    monkeypatch.setattr(sending, "iterate_weights", without)
    trainer.player.weights._key = None
    assert measure() > 100 * TOLERANCE


@pytest.mark.parametrize("trouble", ["hung", "killed and restarted"])
def test_a_server_in_trouble_in_mid_run_costs_its_episodes_and_nothing_wrong_is_trained_on(
    start_server, make, tmp_path, trouble
):
    server = start_server()
    trainer = make(server, max_steps=3)
    play, threads = trainer.player.play, []

    def disturb():
        time.sleep(0.1)  # some replies have begun, and on a fast machine none of them has ended
        if trouble == "hung":
            os.killpg(server.pid, signal.SIGSTOP)
            time.sleep(30)
            os.killpg(server.pid, signal.SIGCONT)
        else:
            server.kill()
            server.start().wait()

    def play_disturbed(model, env, tasks, step, *rest):
        if step == 2:
            threads.append(threading.Thread(target=disturb))
            original = trainer.player.weights.send

            def send(*given):  # the trouble begins after the weights have arrived
                found = original(*given)
                threads[0].start()
                trainer.player.weights.send = original
                return found

            trainer.player.weights.send = send
        return play(model, env, tasks, step, *rest)

    trainer.player.play = play_disturbed
    steps = train_and_read_steps(trainer, tmp_path)
    threads[0].join()
    server.kill()
    assert len(steps) == 3
    assert steps[1]["episodes/faults"] > 0
    assert steps[0]["episodes/faults"] == steps[2]["episodes/faults"] == 0
    assert all(not step.get(WORST, 0.0) > TOLERANCE for step in steps)
