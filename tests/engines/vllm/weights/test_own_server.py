"""`rollout: {engine: vllm}` in training: the run starts its server, one for all of its processes."""

import json
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.support import forks, two_trainers
from tests.support.fake_server import FakeVLLM
from tests.support.guesses import Guesses
from tests.support.vllm_server import TrainedVLLM
from viewbox.configs.sections import ModelSection
from viewbox.engines.hf import loading
from viewbox.rollouts.store.run_folder import read_metrics
from viewbox.training import command as train

PARITY = 1e-5
WORST = "sampling/logp_difference/max"
RUN = {
    "env": {"name": "tests.support.guesses:Guesses", "max_turns": 3, "eval": {"split": "test"}},
    "rollout": {"engine": "vllm", "slots": 8, "max_reply_tokens": 6, "max_completion_tokens": 300},
    "train": {
        "max_steps": 3, "num_generations": 4, "per_device_train_batch_size": 8, "learning_rate": 1e-2,
        "lr_scheduler_type": "linear", "save_steps": 100, "seed": 0,
    },
    "log": {"eval_tasks": 0, "episodes_per_step": 0},
}  # fmt: skip


@pytest.fixture
def fake(tmp_path):
    with FakeVLLM(tmp_path / "fake") as fake:
        yield fake


@pytest.fixture
def write_config(tmp_path, tiny_folder):
    """Writes a config, changed as given; returns its path."""

    def write(name="run", **sections):
        content = {section: {**values, **sections.get(section, {})} for section, values in RUN.items()}
        content["model"] = {"name": str(tiny_folder), "dtype": "float32"}
        content["log"]["dir"] = str(tmp_path / "out")
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return write


@pytest.fixture
def start(fake, tmp_path):
    """Starts `viewbox train` as a process that finds the stand-in for vLLM."""

    def run(*arguments, main=train.main, **more):
        return forks.start(main, *arguments, folder=fake.folder, **fake.variables, **more)

    return run


def read_steps(tmp_path, name="run"):
    return [line for line in read_metrics(tmp_path / "out" / f"{name}-seed0" / "metrics.jsonl") if "grad_norm" in line]


# ---------------------------------------------------------------------- one process
def test_a_run_starts_a_server_trains_on_it_and_ends_it(start, write_config, fake, tmp_path):
    status, said = start(write_config(log={"eval_tasks": 2})).wait()
    assert status == 0, said
    fake.check_ended()
    (started,) = fake.read_starts()
    assert started["VLLM_SERVER_DEV_MODE"] == "1"
    assert {"--weight-transfer-config", "--worker-extension-cls"} <= set(started["arguments"])
    assert not {"--enable-sleep-mode", "--gpu-memory-utilization"} & set(started["arguments"])
    steps = read_steps(tmp_path)
    assert len(steps) == 3
    assert all(step[WORST] <= PARITY and step["episodes/faults"] == 0 for step in steps)
    calls = fake.read_calls()
    assert calls.count("/finish_weight_update") >= 5  # three generations, held-out tasks before and after
    assert "/sleep?level=1" not in calls
    run = tmp_path / "out" / "run-seed0"
    assert "the server loads" in (run / "server.log").read_text()


# ---------------------------------------------------------------------- two processes
@pytest.fixture
def launch(start, tmp_path):
    """Runs a config in so many processes, as a launcher does: the statuses, what each found and what all said."""

    def run(path, *overrides, processes=2, wait=60.0):
        outs = [tmp_path / f"{path.stem}-{rank}.json" for rank in range(processes)]
        running = [
            start(out, wait, path, *overrides, main=two_trainers.main, **rank)
            for rank, out in zip(forks.list_ranks(processes), outs, strict=True)
        ]
        statuses, said = zip(*[process.wait(240) for process in running], strict=True)
        found = [json.loads(out.read_text()) if out.exists() else None for out in outs]
        return SimpleNamespace(statuses=list(statuses), batches=found, said="\n".join(said))

    return run


@pytest.fixture
def served(tiny_folder):
    """A server that the user started, with other weights than the policy's."""
    section = ModelSection(name=str(tiny_folder), dtype="float32")
    _, processor = loading.load_processor(section)
    loading.set_max_pixels(processor, Guesses().max_pixels)
    model = loading.load_model(section).eval()
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(1.5)
    return TrainedVLLM(model, processor)


def get_played(batch):
    return sorted(tuple(map(str, one)) for one in batch)


def test_two_processes_share_one_server_its_weights_and_the_episodes_of_a_step(launch, write_config, served, tmp_path):
    with served.serve() as server:
        half = {"max_steps": 2, "per_device_train_batch_size": 4, "optim": "sgd", "learning_rate": 1.0}
        given = {"train": half, "rollout": {"url": server.url}}
        two = launch(write_config("two", **given))
        asked = [one["body"]["sampling_params"]["seed"] for one in server.requests if "sampling_params" in str(one)]
        calls = list(served.calls)
        one = launch(write_config("one", **given), "train.per_device_train_batch_size=8", processes=1)
    assert two.statuses == [0, 0], two.said
    assert one.statuses == [0], one.said
    first, second = two.batches
    # Weights are sent once an update, by the main process, and both processes sample with the same version
    assert [batch["sent"] for batch in first] == [1, 2]
    assert [batch["sent"] for batch in second] == [0, 0]
    assert calls.count("/finish_weight_update") == 2
    assert [batch["version"] for batch in first] == [batch["version"] for batch in second]
    assert first[0]["version"] != first[1]["version"]
    # Each plays its own share, none twice
    numbers = [number for batches in (first, second) for batch in batches for number, *_ in batch["played"]]
    assert sorted(numbers) == list(range(16))
    assert len(asked) == len(set(asked))
    # The episodes are those of one process, and so are the updates, up to rounding
    for step in range(2):
        both = get_played(first[step]["played"] + second[step]["played"])
        assert both == get_played(one.batches[0][step]["played"])
    steps, alone = read_steps(tmp_path, "two"), read_steps(tmp_path, "one")
    assert all(step["grad_norm"] > 0 for step in alone)
    for found, expected in zip(steps, alone, strict=True):
        assert found[WORST] <= PARITY
        for name in ("reward", "grad_norm", "episodes/faults", "tokens/sampled"):
            assert found[name] == pytest.approx(expected[name], rel=1e-4), name
    ours, theirs = (load_file(tmp_path / "out" / f"{name}-seed0/model/model.safetensors") for name in ("two", "one"))
    assert max((ours[name] - theirs[name]).abs().max().item() for name in theirs) < 1e-5
