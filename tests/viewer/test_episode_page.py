"""The page of one episode: its turns as parts, its scores with reasons, its tokens; and what a forged episode costs."""

import json

import numpy as np
import pytest
import yaml
from msgspec.structs import replace

from tests.support.saved_episodes import SPEC, play, written
from tests.support.tables import each
from viewbox import Episode, EpisodeTokens, ImageRef, Scores, Task, ToolCall, ToolResult, Turn, load
from viewbox.envs.digits import Digits, viewer
from viewbox.images.shown import ShownView
from viewbox.rewards import build as build_reward
from viewbox.viewer.episode_page import build_episode_page, find_trusted_reward, split_thinking

ENV = Digits()
RIGHT = ENV.tasks[0].reference["label"]
WRONG = "one" if RIGHT != "one" else "two"
GRAY = ImageRef.of(np.full((8, 16), 7, np.uint8))
OTHER = ImageRef.of(np.full((8, 16), 9, np.uint8))


def build(episode, **options):
    """The page, which can always be written as JSON."""
    page = build_episode_page(episode, line=7, **options)
    json.dumps(page, allow_nan=False).encode()
    return page


def make(*turns, **changes):
    opening = Turn("user", "Where?", images=(GRAY,), views=(ShownView(0),))
    return replace(Episode(Task("t", reference={"box": [0.25, 0.25, 0.5, 0.5]}), (opening, *turns)), **changes)


def show(*views, image=OTHER, **fields):
    result = ToolResult("zoom", "zoomed", image=image, views=views, **fields)
    return Turn("tool_result", "zoomed", tool_results=(result,), images=() if image is None else (image,))


# ---------------------------------------------------------------------- turns
def test_the_turns_of_an_episode_are_parts_in_order():
    task = ENV.tasks[0]
    look = f"<think>Small.</think>I zoom.\n{viewer.write_gold_look(ENV, task)}"
    page = build(play(ENV, 0, look, "hm", viewer.write_answer(ENV, task)))
    kinds = [(turn["role"], [part["type"] for part in turn["parts"]]) for turn in page["turns"]]
    assert kinds == [("user", ["picture", "text"]), ("assistant", ["thinking", "text", "call"]),
        ("tool_result", ["result"]), ("assistant", ["text"]), ("user", ["nudge"]), ("assistant", ["text"])]  # fmt: skip
    [thinking, text, call] = page["turns"][1]["parts"]
    assert (thinking["text"], text["text"]) == ("Small.", "I zoom.\n")
    assert (call["name"], call["arguments"]["factor"]) == ("zoom", 4)
    [result] = page["turns"][2]["parts"]
    assert (result["name"], result["error"], result["picture"]) == ("zoom", None, "p1")
    assert page["turns"][4]["parts"][0]["reason"] == "malformed"
    assert (page["line"], page["task"], page["end_reason"]) == (7, "digits-train-0", "answered")


def test_thinking_beside_a_reply_and_why_it_ended_are_shown():
    episode = Episode(Task("a"), (Turn("assistant", "I cannot.", reasoning="It is gray.", finish_reason="refusal"),))
    [turn] = build(episode)["turns"]
    parts = [(part["type"], part["text"]) for part in turn["parts"]]
    assert parts == [("thinking", "It is gray."), ("text", "I cannot."), ("finish", "refusal")]


def test_a_failed_call_and_the_request_to_answer_are_shown():
    env = Digits(max_turns=2)
    bad = '<tool_call>\n{"name": "zoom", "arguments": {"factor": 99}}\n</tool_call>'
    page = build(play(env, 0, bad, "{}"))
    result, nudge = page["turns"][2]["parts"]
    assert "out of range" in result["error"]
    assert result["picture"] is None
    assert (nudge["type"], nudge["reason"]) == ("nudge", "last_turn")
    assert nudge["text"].startswith("Last turn")


def test_pictures_that_the_model_no_longer_saw_are_named_and_the_original_is_the_same_picture_again():
    env = Digits(max_turns=3, history={"last_images": 1})
    look, answer = viewer.write_zoom(env, 2, 0.5, 0.5), viewer.write_answer(env, env.tasks[0])
    page = build(play(env, 0, look, look, answer))
    assert page["turns"][4]["parts"][-1] == {"type": "picture", "picture": "p0"}
    assert [one["dropped_at"] for one in page["pictures"].values()] == [None, 5, None]
    assert page["info"]["last_images"] == 1
    page = build(play(Digits(max_turns=6, history={"last_images": 2}), 0, look, look, look, answer))
    assert [one["dropped_at"] for one in page["pictures"].values()] == [5, 7, None, None]


@each("text, parts", [("plain", [("text", "plain")]), ("[THINK]a[/THINK]b", [("thinking", "a"), ("text", "b")]),
    ("", []), ("<think>never closed", [("thinking", "never closed")]), ("a</think><think>b</think>", [("thinking", "a"),
    ("thinking", "b")])])  # fmt: skip
def test_thinking_is_apart(text, parts):
    assert list(split_thinking(text)) == parts


def test_calls_that_are_not_in_the_text_follow_it():
    turn = Turn("assistant", "I look.", tool_calls=(ToolCall("a", "zoom", '{"factor": 2}'), ToolCall("b", "undo")))
    parts = build(make(turn))["turns"][1]["parts"]
    assert [part.get("name") for part in parts] == [None, "zoom", "undo"]
    assert parts[1]["arguments"] == '{"factor": 2}'


# ---------------------------------------------------------------------- scores and tokens
@pytest.fixture
def run(tmp_path):
    env = Digits(reward=build_reward(SPEC))
    written(tmp_path / "run" / "episodes", play(env, 0, viewer.write_answer(env, env.tasks[0], WRONG)))
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump({"env": {"name": "digits"}, "reward": SPEC}))
    return tmp_path / "run"


def test_components_have_their_reasons_but_for_another_score_than_the_stored_one(run):
    [episode] = load(run)
    reasons = build(episode, reward=find_trusted_reward(run))["scores"]["reasons"]
    assert reasons["label"] == f"label: '{WRONG}' is not '{RIGHT}'"
    assert "IoU" in reasons["box"]
    assert build(episode)["scores"]["reasons"] == {}
    other = replace(episode, scores=Scores(1.0, {"label": 1.0, "box": episode.scores.components["box"]}))
    assert list(build(other, reward=find_trusted_reward(run))["scores"]["reasons"]) == ["box"]


@each("reward", [{"type": "python", "function": "os:abort"}, {"type": "nonsense"}, {"type": "judge",
    "endpoint": "http://127.0.0.1:1", "model": "m", "question": "q"}])  # fmt: skip
def test_no_reward_of_a_run_is_imported_or_asked(tmp_path, reward):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"env": {"name": "digits"}, "reward": reward}))
    written(tmp_path / "episodes", make())
    assert find_trusted_reward(tmp_path) is None


def test_tokens_have_mask_logprob_and_advantage():
    tokens = EpisodeTokens((1, 2), (3, 4), (1, 0), (-0.5, 0.0))
    rows = build(make(tokens=tokens, info={"advantage": 1.5}))["tokens"]
    assert [(row["id"], row["mask"], row["logprob"], row["advantage"]) for row in rows] == [
        (1, 0, None, None), (2, 0, None, None), (3, 1, -0.5, 1.5), (4, 0, None, None),
    ]  # fmt: skip
    assert build(make())["tokens"] is None
    for advantage, replies, expected in [
        ([0.5, -1.0], (1, 1), [0.5, None, -1.0]), ([0.5], (1, 1), [0.5, None, None]), ([2.0], (2,), [2.0, None, 2.0]),
        ([0.5, 1.0], (), [None, None, None]), (["0.5", 10**400], (1, 1), [None, None, None]),
    ]:  # fmt: skip
        tokens = EpisodeTokens((), (3, 4, 5), (1, 0, 1), (0.0,) * 3, replies=replies)
        rows = build(make(tokens=tokens, info={"advantage": advantage}))["tokens"]
        assert [row["advantage"] for row in rows] == expected


# ---------------------------------------------------------------------- pictures
def test_a_picture_that_shows_no_image_has_no_outline_and_the_first_one_is_the_overview_also_without_views():
    episode = make(show())
    first, second = build(episode)["pictures"].values()
    assert (second["outline"], second["original"], second["boxes"]) == (None, None, [])
    assert len(first["boxes"]) == 1
    old = replace(episode, turns=(replace(episode.turns[0], views=()), *episode.turns[1:]))
    assert [len(one["boxes"]) for one in build(old)["pictures"].values()] == [1, 0]


def test_the_original_is_the_tasks_own_image_where_it_was_stored():
    big = ImageRef.of(np.full((64, 128), 7, np.uint8))
    episode = make(show(ShownView(0, (0.5, 0.5, 1.0, 1.0))))
    pictures = build(replace(episode, task=replace(episode.task, images=(big,))))["pictures"]
    assert [one["image"] for one in pictures.values()] == [big.hash] * 3
    assert pictures["original2"]["boxes"][0]["corners"][0] == [0.25, 0.25]
    assert [box["kind"] for box in pictures["p1"]["boxes"]] == []


def test_an_authors_tool_is_drawn_by_the_names_of_its_arguments_and_on_the_picture_that_it_names():
    arguments = {"region": [0.25, 0.25, 0.5, 0.75], "center": (0.5, 0.5), "weights": [0.1, 0.2], "text": "view"}
    result = ToolResult("find", "found", arguments=arguments)
    page = build(make(Turn("tool_result", "found", tool_results=(result,))))
    drawn = [(box["label"], box["shape"]) for box in page["pictures"]["p0"]["boxes"] if box["kind"] == "tool"]
    assert drawn == [("find region", "box"), ("find", "point")]
    half = ShownView(0, (0.5, 0.0, 1.0, 1.0))
    result = ToolResult("find", "found", arguments={"image": "view_1", "box": [0.0, 0.0, 0.5, 1.0]})
    page = build(make(show(half), show(), Turn("tool_result", "found", tool_results=(result,))))
    [box] = [box for box in page["pictures"]["p0"]["boxes"] if box["label"] == "find box"]
    assert box["on"] == "p1"
    assert box["corners"][0::2] == [[0.5, 0.0], [0.75, 1.0]]


# ---------------------------------------------------------------------- forged episodes
NAN, HUGE, INF = float("nan"), 1e300, float("inf")
FORGED = [
    ShownView(0, (NAN, 0.0, 1.0, 1.0)), ShownView(0, (0.0, 0.0, HUGE, 1.0)), ShownView(0, (0.0, 0.0, INF, 1.0)),
    ShownView(0, (0.0, 0.0, 1.0)), ShownView(0, ()), ShownView(0, (0.5, 0.0, 0.5, 1.0)),
    ShownView(0, ("a", "b", "c", "d")), ShownView(-1), ShownView(10**400), ShownView(0, plane="<script>"),
    ShownView(0, slice=-3), ShownView(0, slice="1"), ShownView(0, area=(0.0, 0.0, 0.0, 1.0)),
    ShownView(0, area=(NAN,) * 4), ShownView(0, area=(0.0, 1.0))
]  # fmt: skip


def test_a_forged_view_and_a_picture_of_no_size_are_left_out_and_named():
    for view in FORGED:
        page = build(make(show(view)))
        assert page["pictures"]["p1"]["outline"] is None
        [problem] = page["problems"]
        assert problem.startswith("turn 1: what a picture shows is recorded as "), view
        assert len(page["pictures"]["p0"]["boxes"]) == 1
    for size in ((0, 8), (-1, 8), (10**9, 8)):
        page = build(make(show(ShownView(0), image=ImageRef("00", *size)), show(ShownView(0))))
        assert [result["parts"][0]["picture"] for result in page["turns"][1:]] == [None, "p1"]
        assert "turn 1: a picture of" in page["problems"][0]


def test_forged_boxes_and_arguments_are_not_drawn():
    forged = {"a": [NAN, 0, 1, 1], "b": [0, 0, HUGE, 1], "c": [0, 0, 1], "d": [1, 1, 0, 0], "e": [[[]]], "f": "x",
              "image": "none", "slice": {"a": 1}, "plane": 7, "view": NAN}  # fmt: skip
    arguments = {"box": [NAN, 0, 1, 1], "point1": [0.5], "point2": [2, 3], "center": [INF, 0]}
    page = build(make(show(ShownView(0, (0.5, 0.5, 1.0, 1.0)), arguments=arguments), answer=forged))
    kinds = [box["kind"] for box in page["pictures"]["p0"]["boxes"]]
    assert kinds == ["tool", "gold"]  # what the picture shows closer, and the reference
    assert page["problems"] == []


def nest(depth):
    value = [0, 0, 1, 1]
    for _ in range(depth):
        value = [value]
    return value


class Trap:
    """An author's object that raises whenever it is read."""

    def __str__(self):
        raise RuntimeError("trap")

    __repr__ = __str__


def result_turn(*results, **more):
    return Turn("tool_result", "x", tool_results=results, **more)


HOSTILE = [
    Episode(Task("t")), make(Turn("tool_result"), Turn("assistant"), Turn("user")), make(Turn("system", "hm")),
    # numbers, surrogates, depth, keys, a trap, scores, tokens
    make(answer={"n": [10**5000, -(10**400), NAN, INF, 1e-320]}),
    make(Turn("assistant", "\ud800 <think>\udfff"), answer={"\ud800": "\udc00"}),
    make(answer={"deep": nest(150)}, info={"deep": nest(150)}), make(answer={(1, 2): 3, None: {4}}),
    make(answer={"x": Trap()}, info={"advantage": Trap(), "last_images": Trap(), "place": Trap()}),
    make(scores=Scores(1.0, {"a": None, "": 0.0}, {"a": "\ud800"})),
    make(tokens=EpisodeTokens((-1,), (10**30,), (7,), (NAN,)), info={"advantage": INF}),
    # more pictures than results, and fewer; facts, a place, views of nothing
    make(result_turn(images=(GRAY, OTHER, GRAY))), make(result_turn(ToolResult("a", image=OTHER))),
    make(result_turn(ToolResult("a", "b", facts={"n": 10**5000, "x": [NAN]}))),
    make(info={"place": {"image": "\ud800", "slice": "a.b.c", "plane": 3, "view": ""}, "last_images": 10**30}),
    make(Turn("user", "x", views=(ShownView(0),) * 5), Turn("assistant", views=(ShownView(0),))),
]  # fmt: skip


@each("episode", HOSTILE)
def test_a_hostile_episode_never_raises(episode):
    assert len(build(episode)["turns"]) == len(episode.turns)


LONG, BOX = 10_000_000, [0.1, 0.1, 0.2, 0.2]
SLOW = [  # 10 MB of text and tags; many boxes, pictures, views, results, replies
    *(make(Turn("assistant", tag * (LONG // len(tag)))) for tag in ("x", "<think>", "</think><think>")),
    make(Turn("assistant", "<tool_call>" * (LONG // 11), tool_calls=(ToolCall("a", "b"),))),
    make(answer={"boxes": [BOX] * 200_000}), make(*[show(ShownView(0))] * 20_000, answer={"boxes": [BOX] * 500}),
    make(show(*[ShownView(0)] * 100_000)),
    make(result_turn(*[ToolResult("a", image=OTHER)] * 50_000, images=(GRAY,) * 50_000), info={"last_images": 1}),
    make(*[Turn("assistant", "a"), show(ShownView(0))] * 20_000, info={"last_images": 2}),
]  # fmt: skip


def test_the_work_for_an_episode_is_bounded():
    for episode in SLOW:
        assert build(episode)["turns"]  # with work that grows as the square, each would take hours: see `timeout`
