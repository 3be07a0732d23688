"""The calls of one reply: in order on the view, each under its id; limits, and faults that cost their call alone."""

import asyncio
import threading

import numpy as np
import pytest

from tests.support.loop_kit import TASK, Find, Play, ask, make_env_with_tools, play_replies, write_answer, write_call
from viewbox.core.tasks import MAX_SHOWN
from viewbox.errors import ToolFault
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, Reply, Task, ToolCall
from viewbox.tools import ToolOutput

# ---- stateful tools


def test_a_call_shows_the_new_view_and_what_it_covers():
    message = Play(Find(max_pixels=800)).say(write_call(factor=2, center=[0, 0])).messages[0]
    assert (message.role, message.name, len(message.images)) == ("tool", "zoom", 1)
    assert "shows: [0.0, 0.0, 0.5, 0.5]" in message.text


def test_calls_of_one_reply_are_run_in_order_on_one_view():
    play = Play(Find())
    play.say(write_call(factor=2, center=[0, 0]) + write_call("reset") + write_call("crop", box=[0.5, 0, 1, 1]))
    assert play.state.view.window == (0.5, 0, 1, 1)


def test_native_and_text_calls_of_one_reply_are_all_run_native_first():
    said = Play(Find()).say(Reply(write_call("reset"), (ToolCall("a", "zoom", {"factor": 2}),))).messages
    assert [(m.tool_call_id, m.name) for m in said] == [("a", "zoom"), ("call_0", "reset")]


def test_a_text_call_whose_id_a_native_call_has_gets_another():
    play = Play(Find())
    said = play.say(Reply(write_call("reset"), (ToolCall("call_0", "zoom", {"factor": 2}),))).messages
    assert len({m.tool_call_id for m in said}) == 2
    assert [c.id for c in play.state.turns[1].tool_calls] == [m.tool_call_id for m in said]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (write_call("nothing"), 'unknown tool "nothing"'),
        (write_call(factor=9), "allowed: 0.5 to 4"),
        (write_call(center=[2, 0]), "out of range"),
        ("<tool_call>zoom 2</tool_call>", "JSON"),
    ],
)
def test_a_failing_call_says_why_and_the_others_still_run(bad, words):
    play = Play(Find())
    said = play.say(write_call(factor=2) + bad + write_call(factor=2)).messages
    assert [len(m.images) for m in said] == [1, 0, 1]
    assert said[1].text.startswith("error: ")
    assert words in said[1].text
    assert play.state.view.window == (0.375, 0.375, 0.625, 0.625)


def test_the_record_holds_calls_results_and_images():
    episode = play_replies(Find(), write_call(factor=2) + write_call(factor=9), write_answer())
    assert [turn.role for turn in episode.turns] == ["user", "assistant", "tool_result", "assistant"]
    assert (episode.tool_call_count, episode.tools_used()) == (2, {"zoom"})
    assert [result.success for result in episode.turns[2].tool_results] == [True, False]
    assert len(episode.turns[2].images) == 1
    assert Episode.from_json(episode.to_json()) == episode


# ---- limits


def test_of_fifty_calls_in_one_reply_the_first_sixteen_are_run_and_all_are_answered():
    play = Play(Find())
    said = play.say("".join([write_call("reset")] * 50)).messages
    assert [len(m.images) for m in said] == [1] * 16 + [0] * 34
    assert {m.text for m in said[16:]} == {"error: Not run: at most 16 calls per reply."}
    assert len({m.tool_call_id for m in said}) == 50


def test_how_many_calls_of_a_reply_are_run_is_a_setting():
    said = Play(Find(max_calls_per_turn=1)).say(write_call("reset") * 2).messages
    assert [len(m.images) for m in said] == [1, 0]


def test_a_call_that_is_not_run_does_not_count_toward_limits():
    play = Play(Find(max_calls_per_turn=1, max_calls={"reset": 2}))
    said = play.say(write_call("reset") * 5, write_call("reset"))
    assert len(said.messages[0].images) == 1


def test_calls_of_a_tool_and_of_all_tools_are_limited_by_settings():
    assert "zoom is used up (1 call)." in Play(Find(max_calls={"zoom": 1})).say_and_read(write_call() + write_call())
    assert "Tool budget used up (1 call)." in Play(Find(max_total_calls=1)).say_and_read(
        write_call() + write_call("reset")
    )


# ---- faults: the other calls still run, and the episode is the environment's to end


def raises(view) -> ToolOutput:
    """Raises."""
    raise RuntimeError("/secret/path")


async def raises_later() -> str:
    """Raises too."""
    raise SystemExit("/secret/path")


def shows_nothing(view) -> ToolOutput:
    """A broken image."""
    return ToolOutput("here", image=np.zeros((0, 5), np.uint8))


def says_nothing() -> str:
    """Returns no text."""
    return None


@pytest.mark.parametrize("broken", [raises, raises_later, shows_nothing, says_nothing], ids=lambda one: one.__name__)
def test_a_tool_that_fails_raises_after_the_other_calls_have_run(broken):
    play = Play(make_env_with_tools(broken, ask))
    with pytest.raises(ToolFault, match=broken.__name__):
        play.say(write_call(factor=2) + write_call(broken.__name__) + write_call("ask", question="x"))
    results = play.state.turns[-1].tool_results
    assert [result.success for result in results] == [True, False, True]
    assert [bool(result.raised) for result in results] == [False, True, False]
    assert results[2].text == "you asked x"


def test_a_tool_that_fails_once_is_called_again_on_the_same_view_and_the_episode_goes_on():
    seen = []

    def flaky(view) -> ToolOutput:
        """Fails first."""
        seen.append(view)
        if len(seen) == 1:
            raise ConnectionError("refused")
        return ToolOutput("here", view=view.zoom(2))

    play = Play(make_env_with_tools(flaky, ask))
    (said,) = play.say(write_call("flaky")).messages
    assert (said.text.startswith("here"), seen[0] is seen[1]) == (True, True)
    assert play.state.turns[-1].tool_results[0].raised == "ConnectionError"
    assert play.say(write_answer()).terminated


@pytest.fixture
def gate():
    """What a hung call waits for; it is opened when the test is over, so that no thread is left behind."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("kind", ["viewer", "thread", "coroutine"])
def test_a_call_that_hangs_is_given_up_after_the_time_limit_and_the_others_still_run(kind, gate):
    def viewer(view) -> ToolOutput:
        """Hangs."""
        gate.wait()
        return ToolOutput("late", view=view.zoom(4))

    def thread() -> str:
        """Hangs."""
        gate.wait()
        return "late"

    async def coroutine() -> str:
        """Hangs."""
        await asyncio.Event().wait()
        return "late"

    hung = {"viewer": viewer, "thread": thread, "coroutine": coroutine}[kind]
    play = Play(make_env_with_tools(hung, ask, tool_timeout=0.5))
    with pytest.raises(ToolFault, match=f"{kind} took longer than 0.5 seconds"):
        play.say(write_call(kind) + write_call("ask", question="x") + write_call(factor=2))
    hanging, asked, zoomed = play.state.turns[-1].tool_results
    assert (hanging.success, asked.text, zoomed.success) == (False, "you asked x", True)
    assert play.state.view.window == (0.25, 0.25, 0.75, 0.75)


def test_a_hundred_megabytes_of_text_are_cut_for_the_model_and_for_the_record():
    def flood() -> str:
        """Says too much."""
        return "x" * 100_000_000

    play = Play(make_env_with_tools(flood))
    assert len(play.say_and_read(write_call("flood"))) <= 8000
    assert len(play.build_episode().to_json()) < 50_000


@pytest.mark.parametrize("limit", [100, 500])
def test_how_much_text_of_a_tool_the_model_reads_is_a_setting(limit):
    def flood() -> str:
        """Says too much."""
        return "x" * 10_000

    told = Play(make_env_with_tools(flood, max_tool_chars=limit)).say_and_read(write_call("flood"))
    assert len(told) <= limit
    assert "10,000 characters" in told


def test_control_characters_go_and_tab_and_newline_stay():
    assert (
        Play(make_env_with_tools(ask)).say_and_read(write_call("ask", question="a\x07\tb\nc\x1b[2Jd"))
        == "you asked a\tb\nc[2Jd"
    )


def test_a_broken_picture_of_another_image_is_a_fault_whose_words_hold_no_path(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG no")
    broken = ImageRef("0", 1, 1, uri=str(tmp_path / "broken.png"))
    task = Task("t", (*[TASK.images[0]] * MAX_SHOWN, broken), TASK.prompt)  # not among those shown at the start
    env = Find(tools=["open_image", "zoom"])
    with pytest.raises(ToolFault, match=r"open_image failed \(ImageError\)") as caught:
        Play(env, task).say(write_call("open_image", image=f"image_{MAX_SHOWN + 1}") + write_call(factor=2))
    assert str(tmp_path) not in str(caught.value)


def test_a_play_that_is_cancelled_in_a_tool_leaves_the_others_and_no_task_behind():
    async def sleeps() -> str:
        """Hangs."""
        await asyncio.Event().wait()

    env = make_env_with_tools(sleeps)

    async def run():
        before = asyncio.all_tasks()
        stuck = asyncio.create_task(env.play_async(TASK, lambda messages: write_call("sleeps")))
        other = asyncio.create_task(env.play_async(TASK, lambda messages: write_answer()))
        await asyncio.sleep(0.05)
        stuck.cancel()
        (broken,) = await asyncio.gather(stuck, return_exceptions=True)
        return type(broken), (await other).end_reason, asyncio.all_tasks() - before

    assert asyncio.run(asyncio.wait_for(run(), 30)) == (asyncio.CancelledError, "answered", set())
