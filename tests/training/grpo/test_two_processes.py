"""GRPO in two real processes, which share no task and no seed."""

import json
import socket

import pytest

from tests.support import forks, two_processes


@pytest.fixture
def launched(tmp_path, tiny_folder):
    """Trains in two processes with so many episodes each, as a launcher does: (what they found, what they said)."""

    def run(batch):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        given = (two_processes.main, tiny_folder, batch, tmp_path)
        running = [forks.start(*given, folder=tmp_path, **shared, RANK=rank, LOCAL_RANK=rank) for rank in ("0", "1")]
        said = [process.wait()[1] for process in running]
        return [json.loads(path.read_text()) for path in sorted(tmp_path.glob("[01].json"))], "".join(said)

    return run


def test_processes_play_tasks_and_seeds_of_their_own(launched):
    found, said = launched(8)
    assert len(found) == 2, said
    plays = [play for one in found for play in one["rounds"]]
    assert sorted(number for play in plays for _, number in play) == list(range(2 * 16))
    assert [(one["given"], one["played"]) for one in found] == [(2 * 16, 16)] * 2
    groups = [{task for task, _ in play[start : start + 4]} for play in plays for start in (0, 4)]
    assert [len(group) for group in groups] == [1] * 8
    assert len(set().union(*groups)) == 8
