"""One episode as a picture: its question, a panel for each turn, the boxes of reference and answer."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from viewbox.cli import episode_picture
from viewbox.cli.episode_picture import MARGIN, SIDE, TOP, draw_episode, find_boxes, list_panels
from viewbox.cli.saved_episode import find_best_episode, load_episode
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import StoreError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, Task, ToolResult, Turn
from viewbox.rollouts.store.writer import EpisodeWriter

ENV = Digits()
GREEN, RED = (0, 128, 0), (255, 0, 0)


def played(number, *replies):
    said = iter(replies)
    return ENV.play(ENV.tasks[number], lambda messages: next(said))


def right(number, looks=1):
    task = ENV.tasks[number]
    return played(number, *[viewer.write_gold_look(ENV, task)] * looks, viewer.write_answer(ENV, task))


def wrong(number):
    box = '{"label": "one", "bbox": [100, 200, 300, 400], "continue": false}'
    return played(number, viewer.write_zoom(ENV, 2, 0.5, 0.5), box)


def of_image(image, reference, answer=None, **turn):
    """An episode of another environment: one image, and perhaps a tool result."""
    picture = ImageRef.of(image)
    task = Task("scan-7", (picture,), {"question": "Where is it?"}, reference)
    turns = [Turn("user", "Where is it?", images=(picture,)), Turn("assistant", "Here.")]
    if turn:
        turns += [Turn("tool_result", **turn), Turn("assistant", "There.")]
    return Episode(task, tuple(turns), answer)


def panel(picture, number=0, size=(SIDE, SIDE)):
    left = MARGIN + number * (SIDE + MARGIN)
    return np.asarray(picture)[TOP : TOP + size[1], left : left + size[0]]


def frame(pixels, color):
    """The bounding box of a color, as fractions of the pixels."""
    rows, columns = np.nonzero((pixels == color).all(axis=2))
    height, width = pixels.shape[:2]
    return columns.min() / width, rows.min() / height, columns.max() / width, rows.max() / height


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_there_is_a_panel_for_every_image_the_model_was_shown(looks):
    episode = right(0, looks)
    assert [one.image.width > 0 for one in list_panels(episode)] == [True] * (1 + looks)
    assert draw_episode(episode).width == max(3, 1 + looks) * (SIDE + MARGIN) + MARGIN


def test_every_panel_shows_its_own_image():
    episode = right(0)
    images = [turn.images[0].open() for turn in episode.turns if turn.images]
    picture = draw_episode(episode)
    for number, image in enumerate(images):
        shown = np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.NEAREST))
        assert (panel(picture, number) == shown).all(axis=2).mean() > 0.96  # all but the frames drawn on it


def test_the_gold_box_is_green_and_the_answer_red_at_their_places():
    episode = wrong(0)
    pixels = panel(draw_episode(episode))
    np.testing.assert_allclose(frame(pixels, RED), (0.1, 0.2, 0.3, 0.4), atol=0.01)
    np.testing.assert_allclose(frame(pixels, GREEN), episode.task.reference["bbox"], atol=0.01)


def test_an_episode_without_an_answer_shows_the_gold_box_alone():
    episode = played(0, *["hm"] * 10)
    assert episode.answer is None
    pixels = panel(draw_episode(episode))
    assert (pixels == GREEN).all(axis=2).any()
    assert not (pixels == RED).all(axis=2).any()


def test_both_boxes_are_seen_where_they_are_equal():
    box = [0.25, 0.25, 0.75, 0.75]
    pixels = panel(draw_episode(of_image(Image.new("L", (64, 64)), {"at": box}, {"at": box})))
    assert (pixels == GREEN).all(axis=2).sum() > SIDE
    assert (pixels == RED).all(axis=2).sum() > SIDE


def test_boxes_are_found_in_any_field_of_any_environment():
    assert list(find_boxes({"lesion": [0, 0, 0.5, 1], "size": [3, 4], "ages": [1, 20, 30, 40]})) == [(0, 0, 0.5, 1)]
    assert list(find_boxes({"findings": ({"at": (0.1, 0.1, 0.2, 0.2)}, {"at": (0.5, 0.5, 0.6, 0.6)})})) == [
        (0.1, 0.1, 0.2, 0.2),
        (0.5, 0.5, 0.6, 0.6),
    ]
    picture = draw_episode(of_image(Image.new("L", (64, 64)), {"lesion": [0.5, 0.5, 1, 1]}))
    np.testing.assert_allclose(frame(panel(picture), GREEN), (0.5, 0.5, 1, 1), atol=0.01)


def test_an_image_keeps_its_aspect_ratio():
    picture = draw_episode(of_image(Image.new("L", (80, 20), 200), {"at": [0, 0, 0.5, 1]}))
    pixels = panel(picture, size=(SIDE, SIDE // 4))
    np.testing.assert_allclose(frame(pixels, GREEN), (0, 0, 0.5, 1), atol=0.02)
    assert (panel(picture)[SIDE // 4 + 1 :] == 255).all()


def test_a_failed_tool_call_shows_its_error():
    result = ToolResult("zoom", error="zoom: factor = 0; allowed: 1 to 16")
    first, second = list_panels(of_image(Image.new("L", (8, 8)), {}, content="", tool_results=(result,)))
    assert (first.errors, second.errors) == ("", "zoom: factor = 0; allowed: 1 to 16")
    drawn = panel(draw_episode(of_image(Image.new("L", (8, 8)), {}, content="", tool_results=(result,))), 1)
    assert (drawn[..., 0] > drawn[..., 1]).any()  # red words


def test_the_task_its_question_and_the_scores_are_written_above_and_below(monkeypatch):
    lines = []
    write = episode_picture.ImageDraw.ImageDraw.text
    monkeypatch.setattr(
        episode_picture.ImageDraw.ImageDraw, "text", lambda *given: (lines.append(given[2]), write(*given))
    )
    episode = wrong(0)
    draw_episode(episode)
    draw_episode(of_image(Image.new("L", (8, 8)), {"n": 1}))
    written = "\n".join(lines)
    assert written.startswith(f"{episode.task.id}: ")
    assert "scan-7: Where is it?" in written
    assert f'"label": "{episode.task.reference["label"]}"' in written
    assert f"reward: {episode.scores.total:.2f}" in written
    assert "answer (red): no answer (answered)" in written


def test_without_a_number_the_best_episode_that_used_a_tool_is_drawn(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        for episode in (wrong(0), right(1, looks=0), right(2), played(3, *["hm"] * 10)):
            writer.append(episode)
    assert find_best_episode(str(tmp_path)).task.id == "digits-train-2"


def test_without_tools_the_best_episode_is_drawn(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        for episode in (played(3, *["hm"] * 10), right(1, looks=0)):
            writer.append(episode)
    assert find_best_episode(str(tmp_path)).task.id == "digits-train-1"


def test_the_number_is_that_of_reward_try(viewbox, tmp_path):
    with EpisodeWriter(tmp_path / "run") as writer:
        for number in (4, 5):
            writer.append(right(number))
    assert [load_episode(str(tmp_path / "run"), n)[0].task.id for n in (0, 1)] == ["digits-train-4", "digits-train-5"]
    with pytest.raises(StoreError, match=r"episode 2: .*run holds 2 readable episodes; allowed: 0 to 1"):
        load_episode(str(tmp_path / "run"), 2)
    (tmp_path / "label.yaml").write_text("type: exact_match\nfield: label\n")
    status, out, _ = viewbox("reward", "try", tmp_path / "label.yaml", "--episode", f"{tmp_path / 'run'}:1", "--json")
    assert (status, json.loads(out)["total"]) == (0, 1.0)


def test_an_empty_episode_can_be_drawn():
    assert draw_episode(replace(of_image(Image.new("L", (8, 8)), {}), turns=())).width > SIDE
