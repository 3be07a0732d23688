"""The page of a group in a real browser: what its episodes have in common is folded, where they part is marked."""

from itertools import count

import pytest

from tests.support.saved_episodes import written
from tests.viewer.test_browser import make, open_page, report
from viewbox.records import ToolCall, ToolResult, Turn


def say(*replies):
    return (Turn("user", "Where?"), *(Turn("assistant", reply) for reply in replies))


@pytest.fixture
def show(page, tmp_path):
    """Opens the page of a group of episodes with these turns."""
    numbers = count()

    def show(*episodes):
        run = written(
            tmp_path / f"run{next(numbers)}", *(make(number, turns=turns) for number, turns in enumerate(episodes))
        )
        open_page(page, report(tmp_path, run), "#/run/0/group/1")
        return page.inner_text("main")

    return show


def list_texts(page, selector):
    """The texts of these elements in each column."""
    return [column.locator(selector).all_text_contents() for column in page.locator(".group article").all()]


def test_the_first_reply_that_differs_is_marked_and_equal_ones_are_folded(page, show):
    text = show(say("a", "b", "It is left.", "x"), say("a", "b", "It is right, I think.", "x"))
    assert "The first 2 replies are the same; they part at reply 3." in text
    assert list_texts(page, "details.common > summary") == [["replies 1 to 2: the same in all"]] * 2
    assert list_texts(page, "details.common pre") == [["a", "b"]] * 2
    assert not page.locator("details.common pre").first.is_visible()
    assert list_texts(page, "span.common") == [["It is "]] * 2
    assert list_texts(page, "mark") == [["left."], ["right, I think."]]


def test_what_one_reply_says_more_is_marked_and_one_that_ended_has_no_mark(page, show):
    show(say("There"), say("There."), say())
    assert list_texts(page, "mark") == [["There"], ["There."], []]  # with an episode without a reply nothing is common
    show(say("There"), say("There."))
    assert list_texts(page, "mark") == [[], ["."]]
    assert "All replies are the same." in show(say("a", "b"), say("a", "b"))
    assert page.locator("mark, details.common").count() == 0


def test_thinking_and_calls_are_marked_where_they_differ(page, show):
    def act(thought, factor):
        call = ToolCall(id=f"c{factor}", name="zoom", arguments={"factor": factor})
        return Turn("user", "Where?"), Turn("assistant", f"<think>{thought}</think>", tool_calls=(call,))

    show(act("Hm.", 2), act("Hm.", 4))
    assert list_texts(page, "mark") == [["2}"], ["4}"]]
    show(act("Hm, left", 2), act("Hm, right", 2))
    assert page.get_by_text("right").is_visible()  # such thinking is open
    assert list_texts(page, "mark") == [["left", 'zoom {"factor":2}'], ["right", 'zoom {"factor":2}']]


def test_results_that_differ_after_equal_replies_are_not_folded(page, show):
    def act(text, reply):
        call = ToolCall(id="c", name="roll", arguments={})
        result = ToolResult("roll", text, call_id="c")
        turns = Turn("assistant", "", tool_calls=(call,)), Turn("tool_result", text, tool_results=(result,))
        return Turn("user", "Roll."), *turns, Turn("assistant", reply)

    show(act("six", "6"), act("one", "1"))
    assert list_texts(page, "details.common > summary") == [["reply 1: the same in all"]] * 2
    assert page.get_by_text("six").first.is_visible()


def test_a_mark_does_not_cut_a_character_in_two(page, show):
    show(say("\U0001f600"), say("\U0001f601"))  # their first halves are equal
    assert list_texts(page, "mark") == [["\U0001f600"], ["\U0001f601"]]
