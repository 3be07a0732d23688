"""`on_tool_fault: tell`: the model reads that a tool failed, goes on, and loses the tool after three faults."""

import time

import pytest

from tests.support.loop_kit import TASK, make_env_with_tools, write_answer, write_call
from viewbox import Picture, ScriptedPolicy, ToolFault
from viewbox.rollouts.scoring.metrics import compute_episode_metrics


def raises(image: Picture) -> str:
    """Raise."""
    raise RuntimeError("the path /home/me/patient.dcm")


def is_down(image: Picture) -> str:
    """Be down."""
    raise ToolFault("cannot read /data/models/x.bin: no such file")


def hangs(image: Picture) -> str:
    """Hang."""
    time.sleep(60)


def play(*replies, **settings):
    env = make_env_with_tools(raises, is_down, hangs, **settings)
    return env.play(TASK, ScriptedPolicy(replies))


def list_results(episode):
    return [result for turn in episode.turns for result in turn.tool_results]


def test_the_model_reads_the_fault_without_paths_and_goes_on():
    calls = write_call("raises", image="image_1") + write_call("is_down", image="image_1")
    episode = play(calls, write_answer())
    assert episode.end_reason == "answered"
    assert [result.text for result in list_results(episode)] == [
        "error: raises failed (RuntimeError)",
        "error: cannot read …/x.bin: no such file",
    ]
    assert "/data" not in episode.to_json()
    assert "/home" not in episode.to_json()


def test_a_fault_costs_no_quota_and_the_third_withdraws_the_tool():
    call = write_call("is_down", image="image_1")
    episode = play(call, call + call, call, write_answer(), max_calls={"is_down": 1})
    texts = [result.text for result in list_results(episode)]
    assert ["withdrawn" in text for text in texts] == [False, False, True, True]
    assert [result.is_fault for result in list_results(episode)] == [True, True, True, False]
    assert "You can still call: " in texts[-1]
    assert "raises" in texts[-1]


def test_a_hang_ends_by_its_time_limit_and_is_told():
    episode = play(write_call("hangs", image="image_1"), write_answer(), tool_timeout=0.2)
    assert episode.end_reason == "answered"
    assert [result.text for result in list_results(episode)] == [
        "error: hangs took longer than 0.2 seconds and was stopped"
    ]


def test_a_specialist_whose_server_is_down_is_told():
    down = {"kind": "http", "url": "http://127.0.0.1:9/look", "description": "Looks.", "attempts": 1}
    env = make_env_with_tools(raises, specialists={"look": down})
    replies = [write_call("look"), write_call("raises", image="image_1"), write_answer()]
    episode = env.play(TASK, ScriptedPolicy(replies))
    texts = [result.text for result in list_results(episode)]
    assert "cannot be reached" in texts[0] or "no connection" in texts[0], texts
    assert (episode.end_reason, [result.is_fault for result in list_results(episode)]) == ("answered", [True, True])


def test_faults_are_counted_apart():
    call = write_call("is_down", image="image_1")
    metrics = compute_episode_metrics([play(call, call, write_answer())], tools=("is_down", "raises"))
    assert (metrics["tools/is_down/faults"], metrics["tools/raises/faults"]) == (2.0, 0.0)
    assert metrics["episodes/faults"] == 0.0


def test_end_ends_the_episode_as_before():
    with pytest.raises(ToolFault, match="cannot read"):
        play(write_call("is_down", image="image_1"), write_answer(), on_tool_fault="end")
