"""GRPO in two real processes, which share no task and no seed."""

import json

from tests.support import forks, two_processes


def test_processes_play_tasks_and_seeds_of_their_own(tmp_path, tiny_folder):
    given = (two_processes.main, tiny_folder, 8, tmp_path)
    running = [forks.start(*given, folder=tmp_path, **rank) for rank in forks.list_ranks(2)]
    said = "".join(process.wait()[1] for process in running)
    found = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("[01].json"))]
    assert len(found) == 2, said
    plays = [play for one in found for play in one["rounds"]]
    assert sorted(number for play in plays for _, number in play) == list(range(2 * 16))
    assert [(one["given"], one["played"]) for one in found] == [(2 * 16, 16)] * 2
    groups = [{task for task, _ in play[start : start + 4]} for play in plays for start in (0, 4)]
    assert [len(group) for group in groups] == [1] * 8
    assert len(set().union(*groups)) == 8
