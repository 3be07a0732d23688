"""One environment in every stack: the same tasks with the same replies give the same messages, ends and scores."""

import functools

import pytest

from tests.support.everywhere import MORE_SCRIPTS, PLAYERS, SCRIPTS, Case, play_driver

# max_malformed=1: TRL's own loop cannot ask again, so no other does
STRICT = (Case, tuple(SCRIPTS), {"max_malformed": 1})
ASKS_AGAIN = (Case, (*SCRIPTS, *MORE_SCRIPTS), {"max_malformed": 3})
# A step of Gymnasium takes a text, and nothing says of it that it was cut off.
UNKNOWN = {("gymnasium", "is cut off")}
CASES = [("strict", adapter, name) for adapter in PLAYERS for name in SCRIPTS]
CASES += [
    ("asks again", adapter, name)
    for adapter in PLAYERS
    for name in (*SCRIPTS, *MORE_SCRIPTS)
    if adapter != "trl" and (adapter, name) not in UNKNOWN
]


@functools.cache
def get_case(kind):
    cls, names, settings = STRICT if kind == "strict" else ASKS_AGAIN
    return cls(names, **settings)


@pytest.fixture(scope="module")
def plays(tmp_path_factory):
    """A function that plays a case with an adapter, once."""

    @functools.cache
    def play(kind, adapter):
        player = play_driver if adapter == "driver" else PLAYERS[adapter]
        return player(get_case(kind), tmp_path_factory.mktemp(adapter))

    return play


@pytest.mark.parametrize(("kind", "adapter", "name"), CASES)
def test_the_same_replies_give_the_same_messages_ends_and_scores(plays, kind, adapter, name):
    pytest.importorskip(adapter, reason="it is in another environment: `make test` and `make test-adapters` have all")
    number = get_case(kind).names.index(name)
    ours, theirs = plays(kind, "driver")[number], plays(kind, adapter)[number]
    assert theirs.messages == ours.messages
    assert (theirs.end_reason, theirs.total, theirs.components) == (ours.end_reason, ours.total, ours.components)


def test_the_scripts_reach_every_end_and_several_scores(plays):
    strict, again = plays("strict", "driver"), plays("asks again", "driver")
    assert {play.end_reason for play in strict.values()} == {"answered", "malformed", "max_turns"}
    assert len({play.total for play in strict.values()}) > 5
    assert len({play.messages for play in again.values()}) == len(again)
