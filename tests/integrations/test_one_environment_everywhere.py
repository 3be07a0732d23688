"""One environment in every stack: the same tasks with the same replies give the same messages, ends and scores."""

import functools
import re

import pytest

from tests.support import two_digits
from tests.support.everywhere import MORE_SCRIPTS, PLAYERS, SCRIPTS, TWO_SCRIPTS, Case, play_driver

# max_malformed=1: TRL's own loop cannot ask again, so no other does
STRICT = (Case, tuple(SCRIPTS), {"max_malformed": 1})
ASKS_AGAIN = (Case, (*SCRIPTS, *MORE_SCRIPTS), {"max_malformed": 3})
TWO_IMAGES = (Case, tuple(TWO_SCRIPTS), {"max_malformed": 1, "environment": f"{two_digits.__file__}:TwoDigits"})
KINDS = {"strict": STRICT, "asks again": ASKS_AGAIN, "two images": TWO_IMAGES}
# A step of Gymnasium takes a text, and nothing says of it that it was cut off.
UNKNOWN = {("gymnasium", "is cut off")}
CASES = [*((kind, adapter) for adapter in PLAYERS for kind in ("asks again", "two images") if adapter != "trl"),
    ("strict", "trl"), ("two images", "trl")]  # fmt: skip


@functools.cache
def get_case(kind):
    cls, names, settings = KINDS[kind]
    return cls(names, **settings)


@pytest.fixture(scope="module")
def plays(tmp_path_factory):
    """A function that plays a case with an adapter, once."""

    @functools.cache
    def play(kind, adapter):
        player = play_driver if adapter == "driver" else PLAYERS[adapter]
        return player(get_case(kind), tmp_path_factory.mktemp(adapter))

    return play


@pytest.mark.parametrize(("kind", "adapter"), CASES)
def test_the_same_replies_give_the_same_messages_ends_and_scores(plays, kind, adapter):
    pytest.importorskip(adapter, reason="it is in another environment: `make test` and `make test-adapters` have all")
    for number, name in enumerate(get_case(kind).names):
        if kind == "asks again" and (adapter, name) in UNKNOWN:
            continue
        ours, theirs = plays(kind, "driver")[number], plays(kind, adapter)[number]
        after = theirs.messages[len(ours.messages) :]
        assert theirs.messages[: len(ours.messages)] == ours.messages, name
        # Refused calls that end an episode are answered where a step returns messages, or where TRL goes on to ask.
        assert {role for role, *_ in after} <= ({"tool", "assistant"} if ours.end_reason == "malformed" else set())
        ends = [(one.end_reason, one.total, one.components) for one in (ours, theirs)]
        assert ends[0] == ends[1], name


def test_the_scripts_reach_every_end_and_several_scores(plays):
    strict, again = plays("strict", "driver"), plays("asks again", "driver")
    assert {play.end_reason for play in strict.values()} == {"answered", "malformed", "max_turns"}
    assert len({play.total for play in strict.values()}) > 5
    assert len({play.messages for play in again.values()}) == len(again)


def test_both_images_of_a_task_are_in_the_first_message_and_the_second_can_be_opened(plays):
    found = plays("two images", "driver")
    shown = {number: re.findall(r"\[[0-9a-f]{12}\]", play.messages[1][1]) for number, play in found.items()}
    assert [len(set(images)) for images in shown.values()] == [2] * len(TWO_SCRIPTS)
    number = get_case("two images").names.index("opens the second")
    opened = found[number]
    assert shown[number][1] in opened.messages[3][1]  # the whole of image_2, as it was shown
    assert opened.end_reason == "answered"
    assert opened.total > 0.98  # the box is rounded
