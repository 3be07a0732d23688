"""`rollout: {engine: vllm}` without a url: the server that viewbox starts, and the commands that play on it."""

import json
import os
import signal

import pytest

from tests.support import forks
from tests.support.fake_server import FakeVLLM
from tests.support.waiting import wait_until
from viewbox.assets import find_model_folder
from viewbox.configs.schema import parse
from viewbox.engines.hf import loading
from viewbox.engines.vllm import process
from viewbox.engines.vllm.process import build_environment, build_flags, build_server
from viewbox.errors import ConfigError
from viewbox.rollouts.store.reader import load

GIVEN = ("--config", "quickstart", "--held-out", "--model", "package:tiny_viewer", "rollout.top_k=1")
OWN = "rollout.engine=vllm"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    with FakeVLLM(tmp_path / "fake") as fake:
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(fake.folder))
        for name, value in fake.variables.items():
            monkeypatch.setenv(name, value)
        yield fake


def make_config(**rollout):
    return parse({"model": {"name": "m"}, "env": {"name": "digits"}, "rollout": {"engine": "vllm"} | rollout})


CHANGED = {"size": {"shortest_edge": 256, "longest_edge": 65536}}


def get_flags(gpu, trains, **rollout):
    config = make_config(**rollout)
    flags = build_flags(config.model, config.rollout, CHANGED, dtype="bfloat16", gpu=gpu, trains=trains)
    return dict(zip(flags, [*flags[1:], ""], strict=True))


# ---------------------------------------------------------------------- how it is started
def test_a_server_is_started_with_what_its_use_needs_and_not_as_a_process_of_the_trainer():
    for gpu, trains, share in ((True, True, "0.4"), (True, False, "0.9"), (False, True, None), (False, False, None)):
        flags = get_flags(gpu, trains, slots=24)
        assert (flags["--max-num-seqs"], flags["--dtype"]) == ("24", "bfloat16")
        assert json.loads(flags["--mm-processor-kwargs"]) == CHANGED
        assert {"--enable-scale-out", "--logprobs-mode"} <= flags.keys()
        assert ("--weight-transfer-config" in flags) == ("--worker-extension-cls" in flags) == trains
        assert ("--enable-sleep-mode" in flags) == (gpu and trains)
        assert flags.get("--gpu-memory-utilization") == share
        assert ("--enforce-eager" in flags) == (not gpu)
    assert get_flags(True, True, gpu_memory=0.55)["--gpu-memory-utilization"] == "0.55"
    with pytest.raises(ConfigError, match=r"gpu_memory = 0\.5 is read with engine: vllm and no url"):
        make_config(gpu_memory=0.5, url="http://127.0.0.1:1")
    variables = {"RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "ACCELERATE_USE_CPU": "1", "HOME": "/h"}
    found = build_environment(variables | {"VLLM_CPU_KVCACHE_SPACE": "9"}, gpu=False)
    assert found["HOME"] == "/h"
    assert found["VLLM_CPU_KVCACHE_SPACE"] == "9"
    assert variables.keys() & found.keys() == {"HOME"}


def test_without_vllm_the_error_says_what_to_do_and_another_environment_will_do(monkeypatch, viewbox, tmp_path):
    monkeypatch.setattr(process, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for command in (("rollout", *GIVEN), ("train", "quickstart", "model.name=package:tiny_viewer")):
        code, _, err = viewbox(*command, OWN)
        assert code == 2
        assert "vLLM is not installed" in err
        assert "pip install vllm" in err
        assert "rollout.url" in err
    command = tmp_path / "vllm"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    config = make_config()
    model = config.model.model_copy(update={"name": "package:tiny_viewer"})
    _, processor = loading.load_processor(model)
    loading.set_max_pixels(processor, 96 * 96)
    given = {"dtype": "auto", "gpu": True, "run": tmp_path / "run"}
    server = build_server(model, config.rollout, processor.image_processor, **given)
    assert server.command[:2] == [str(command), "serve"]
    size = {"shortest_edge": 16 * 16, "longest_edge": 96 * 96}
    assert json.loads(server.command[server.command.index("--mm-processor-kwargs") + 1]) == {"size": size}
    assert not server.is_running()
    (copied,) = (tmp_path / "run" / "server").glob("*.py")  # that environment needs no viewbox
    assert f"{copied.stem}.FileWeights" in server.command
    assert server.environment["PYTHONPATH"].split(":")[0] == str(copied.parent)
    assert "import viewbox" not in copied.read_text()
    assert "from viewbox" not in copied.read_text()


# ---------------------------------------------------------------------- the commands
def read_texts(folder):
    episodes = sorted(load(folder / "episodes"), key=lambda episode: episode.task.id)
    return [[turn.content for turn in episode.turns] for episode in episodes]


def test_rollout_starts_a_server_plays_on_it_and_ends_it(fake, viewbox, tmp_path):
    """Also where data may not leave this machine."""
    ward = "from viewbox.envs.digits import Digits\n\n\nclass Ward(Digits):\n    restricted = True\n"
    (tmp_path / "ward.py").write_text(ward)
    given = ("rollout", *GIVEN, OWN, "env.name=ward:Ward", "--tasks", 3, "--out", "served")
    code, out, err = viewbox(*given)
    assert code == 0, err
    assert "starting a vLLM server of package:tiny_viewer; its log: served/server.log" in out
    assert "the server answers after" in out
    fake.check_ended()
    (start,) = fake.read_starts()
    flags = start["arguments"]
    assert flags[flags.index("--model") + 1] == str(find_model_folder("package:tiny_viewer"))
    assert flags[flags.index("--host") + 1] == "127.0.0.1"
    assert start["VLLM_SERVER_DEV_MODE"] is None
    assert "the server loads" in (tmp_path / "served" / "server.log").read_text()
    code, out, _ = viewbox(*given)
    assert code == 0
    assert "starting" not in out  # all episodes are there
    assert len(fake.read_starts()) == 1


def test_a_server_that_dies_in_mid_rollout_is_started_again_and_no_episode_is_lost(fake, viewbox, tmp_path):
    fake.set("dies", 6)
    code, _, err = viewbox("rollout", *GIVEN, OWN, "rollout.slots=2", "--tasks", 4, "--out", "served")
    assert code == 0, err
    assert len(fake.read_starts()) == 2
    assert {episode.end_reason for episode in load(tmp_path / "served" / "episodes")} == {"answered"}
    assert viewbox("rollout", *GIVEN, "--tasks", 4, "--out", "own")[0] == 0
    assert read_texts(tmp_path / "served") == read_texts(tmp_path / "own")
    fake.check_ended()


def test_evaluate_plays_both_ways_on_one_server(fake, viewbox, tmp_path):
    given = [one for one in GIVEN if one != "--held-out"]
    code, out, err = viewbox("evaluate", *given, OWN, "--tasks", 2, "--bootstrap", 0, "--out", "both")
    assert code == 0, err
    assert "the server answers after" in out
    assert len(fake.read_starts()) == 1
    assert (tmp_path / "both" / "server.log").is_file()
    fake.check_ended()


def test_a_rollout_that_is_stopped_while_the_server_loads_leaves_no_process(tmp_path):
    script = tmp_path / "command.py"
    script.write_text("from viewbox.cli.app import main\n\nmain()\n")
    with FakeVLLM(tmp_path / "fake") as fake:  # on the path of this process, forks would import it with trl
        fake.set("hangs", 1)
        given = ("rollout", *GIVEN, OWN, "--tasks", 1, "--out", "out")
        process = forks.start_script(script, *given, folder=fake.folder, **fake.variables)
        wait_until(lambda: fake.read_starts() or process.status is not None)
        os.kill(process.pid, signal.SIGINT)
        status, said = process.wait()
        assert status == 130, said
        fake.check_ended()
