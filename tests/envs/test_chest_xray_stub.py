"""The chest X-ray agent's loop: specialists beside each other, pictures by name, failures, a user who answers."""

import asyncio
import json

import pytest

from tests.support import chest_xray_stub as STUB
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.errors import ToolFault

ENV = STUB.ChestXrayStub()
RIGHT, LEFT, NONE = ENV.tasks


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def played(*replies, task=RIGHT, env=ENV, seed=0):
    return env.play(task, ScriptedPolicy(replies), seed=seed)


def results(*calls, task=RIGHT, env=ENV):
    """The results of one reply's calls."""
    return played("\n".join(calls), "done", task=task, env=env).turns[2].tool_results


# ---- reason, act, observe, answer


def test_the_reply_without_a_call_is_the_answer():
    episode = played("Let me look.\n" + call("classify_dense", image="image_1"), "opacity on the right")
    assert (episode.end_reason, episode.terminated) == ("answered", True)
    assert episode.answer == {"text": "opacity on the right"}
    assert episode.scores.total == 1


def test_the_specialists_may_be_asked_again_and_again_until_then():
    looks = [call(name, image="image_1") for name in ("classify_dense", "segment")]
    episode = played(*looks, call("ask_image", image="view_2", question="Is it dense?"), "opacity on the right")
    assert episode.num_turns == 4
    assert episode.tools_used() == {"classify_dense", "segment", "ask_image"}


# ---- specialists beside each other


def test_one_class_under_two_names_gives_two_answers_in_one_reply_which_depend_on_the_pixels():
    dense, faint = results(call("classify_dense", image="image_1"), call("classify_faint", image="image_1"))
    assert dense.facts == {"opacity": 0.312, "no_finding": 0.688}  # a box of 1/8 x 1/4 of the picture, times 10
    assert (faint.tool_name, faint.facts["opacity"]) == ("classify_faint", 1.0)
    (dense,) = results(call("classify_dense", image="image_1"), task=NONE)
    assert dense.facts == {"opacity": 0.0, "no_finding": 1.0}


def test_a_specialist_never_changes_the_view_and_its_picture_has_a_number_by_which_the_next_is_asked():
    zoom = call("zoom", factor=2, center=[0.25, 0.75])
    drawn = call("segment", image="view_2"), call("segment", image="view_3", at_least=76)
    episode = played(zoom, *drawn, call("zoom", factor=2), "done")
    zoomed, first, second, again = (turn.tool_results[0] for turn in episode.turns if turn.tool_results)
    assert zoomed.facts["shows"] == (0.0, 0.5, 0.5, 1.0)
    assert again.facts["shows"] == (0.125, 0.625, 0.375, 0.875)
    assert [result.facts["view"] for result in (zoomed, first, second)] == [2, 3, 4]
    assert first.image.mode == "RGB"


# ---- boxes


def test_a_box_is_of_the_picture_beside_it_in_the_environments_coordinates():
    for coordinates, box in {
        "unit": (0.125, 0.5, 0.25, 0.75),
        "per_mille": (125, 500, 250, 750),
        "pixel": (16, 48, 32, 72),
    }.items():
        (result,) = results(
            call("ground", image="image_1", phrase="opacity"), env=STUB.ChestXrayStub(coordinates=coordinates)
        )
        assert result.facts["box"] == box
    zoom = call("zoom", factor=2, center=[0.1875, 0.625])
    grounded = played(zoom, call("ground", image="view_2", phrase="opacity"), "done").turns[4].tool_results[0]
    assert grounded.facts["box"] == pytest.approx((0.25, 0.25, 0.5, 0.75))
    halves = ([0, 0, 64, 96], [64, 0, 128, 96])
    inside, outside = results(
        *(call("ground", image="image_1", phrase="opacity", within=within) for within in halves),
        env=STUB.ChestXrayStub(coordinates="pixel"),
    )
    assert inside.facts["box"] == (16, 48, 32, 72)
    assert outside.text == "no opacity found"


# ---- failures, the user


def test_a_failure_ends_the_episode_after_the_other_calls_have_run_and_names_no_files():
    state = ENV.reset(RIGHT, seed=0)
    with pytest.raises(ToolFault) as caught:
        asyncio.run(ENV.step(state, call("generate", image="image_1") + "\n" + call("report", image="image_1")))
    broken, fine = state.turns[-1].tool_results
    assert broken.error == str(caught.value) == "generate failed (RuntimeError)"
    assert fine.text == "Dense opacity."
    assert "patients" not in broken.to_json()


def test_a_question_back_is_answered_by_the_user_and_the_episode_goes_on():
    episode = played("How old is the patient?", call("report", image="image_1"), "opacity on the right")
    assert episode.turns[2].content == "Patient: age 61, complaint cough for three weeks"
    assert episode.answer == {"text": "opacity on the right"}
    said = "".join(message.text for message in ENV.reset(RIGHT, seed=0).messages)
    assert "cough" not in said


def test_the_same_replies_and_seed_give_the_same_words_and_pictures():
    replies = [
        "\n".join(call(name, image="image_1") for name in ("segment", "report", "classify_dense")),
        call("ground", image="view_2", phrase="opacity"),
        "opacity on the right",
    ]
    assert played(*replies, seed=3).to_json() == played(*replies, seed=3).to_json()
