"""GRPO in two real processes: rounds of resampling that differ between them neither wait, nor share tasks or seeds."""

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


def test_processes_resample_their_own_groups_with_tasks_and_seeds_of_their_own(launched):
    found, said = launched(8)
    assert len(found) == 2, said
    assert found[0]["given"] == found[1]["given"] == 2 * (1 + 3) * 16
    numbers = [number for one in found for play in one["rounds"] for _, number in play]
    assert len(numbers) == len(set(numbers))
    sizes = [[len(play) for play in one["rounds"]] for one in found]
    assert sizes[0] != sizes[1]  # or this says nothing
    assert found[0]["played"] == found[1]["played"] == sum(number < 64 for number in numbers)
    tasks = [play[k][0] for one in found for play in one["rounds"] if play[0][1] < 64 for k in range(0, len(play), 4)]
    assert len(tasks) == len(set(tasks))
