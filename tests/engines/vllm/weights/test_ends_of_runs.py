"""Runs with a server of their own that end early, and two processes that train on one: what may hang, or be left."""

# ruff: noqa: F811 (fixtures of another file)
import os
import signal

import pytest

from tests.engines.vllm.weights.test_own_server import (  # noqa: F401
    PARITY,
    WORST,
    fake,
    launch,
    read_steps,
    served,
    start,
    write_config,
)  # fmt: skip
from tests.support.servers import hang_up
from tests.support.waiting import wait_until


def test_a_server_that_dies_in_mid_run_is_started_again_and_gets_the_weights_again(start, write_config, fake, tmp_path):
    fake.set("dies", 20)  # the check, and two replies an episode: in the second generation
    status, said = start(write_config()).wait()
    assert status == 0, said
    assert len(fake.read_starts()) == 2
    assert "is started again" in said
    steps = read_steps(tmp_path)
    assert [step["episodes/faults"] > 0 for step in steps] == [False, True, False]
    assert all(step[WORST] <= PARITY for step in (steps[0], steps[2]))
    assert fake.read_calls().count("/init_weight_transfer_engine") == 2
    fake.check_ended()


def test_after_two_starts_that_fail_the_run_ends_with_a_checkpoint_to_go_on_from(start, write_config, fake, tmp_path):
    fake.set("dies", 20)
    fake.set("then", 2)
    path = write_config()
    status, said = start(path).wait()
    assert status == 2
    assert "the server ended 2 times in a row; its log, " in said
    assert "CUDA out of memory" in said
    assert "stopped at step 2; continue with --resume" in said
    assert len(fake.read_starts()) == 3
    fake.check_ended()
    status, said = start(path, "--resume").wait()
    assert status == 0, said
    assert "resumed from step 2" in said
    fake.check_ended()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=str)
def test_a_run_that_is_stopped_leaves_no_process_of_its_server(start, write_config, fake, tmp_path, number):
    running = start(write_config(train={"max_steps": 1000}))
    metrics = tmp_path / "out" / "run-seed0" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() or running.status is not None)
    assert running.status is None, running.output.read_text()
    os.kill(running.pid, number)
    status, said = running.wait()
    assert status == (-number if number == signal.SIGKILL else 130), said
    fake.check_ended()


def test_two_processes_start_one_server(launch, write_config, fake):
    found = launch(write_config(train={"max_steps": 2, "per_device_train_batch_size": 4}))
    assert found.statuses == [0, 0], found.said
    (started,) = fake.read_starts()
    assert started["RANK"] is started["MASTER_PORT"] is None
    versions = [[batch["version"] for batch in batches] for batches in found.batches]
    assert versions[0] == versions[1]
    assert {end for batches in found.batches for batch in batches for *_, end in batch["played"]} == {"answered"}
    fake.check_ended()


@pytest.mark.parametrize("whose", ["the user's", "the run's"])
def test_a_server_that_is_gone_ends_both_processes_with_one_error(launch, write_config, served, fake, whose, tmp_path):
    train_section = {"max_steps": 3, "per_device_train_batch_size": 4}
    if whose == "the run's":
        fake.set("dies", 20)
        fake.set("then", 2)
        found, says = launch(write_config(train=train_section)), "the server ended 2 times in a row"
    else:
        with served.serve() as server:
            whole = server.by_path["/finish_weight_update"]

            def finish(body):
                if served.calls.count("/finish_weight_update") == 2:
                    server.by_path = {path: lambda body: hang_up for path in server.by_path}
                return whole(body)

            server.by_path["/finish_weight_update"] = finish
            found = launch(write_config(train=train_section, rollout={"url": server.url}), wait=1.0)
        says = "no weights could be sent for 1 s"
    assert found.statuses == [2, 2], found.said
    assert found.said.count(says) == 2  # once a process, and nothing else
    assert "Traceback" not in found.said
    assert found.said.count("stopped at step 2; continue with --resume") == 1
    assert (tmp_path / "out" / "run-seed0" / "checkpoints" / "checkpoint-2").is_dir()
