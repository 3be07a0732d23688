"""One episode as a picture: its question, a panel for each picture and failed call, boxes, answer and errors."""

import json

import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image

from tests.support.tables import each
from viewbox.cli.episodes import find_best_episode, load_episode
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import StoreError
from viewbox.images.ref import ImageRef
from viewbox.images.shown import ShownView
from viewbox.records import Episode, Scores, Task, ToolResult, Turn
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter
from viewbox.viewer import contact_sheet
from viewbox.viewer.contact_sheet import ACROSS, KINDS, LINE, MARGIN, MAX_PANELS, SIDE, draw_episode, list_panels
from viewbox.viewer.episode_page import build_episode_page

ENV = Digits()
RED, GREEN, BLUE = (KINDS[kind][0] for kind in ("answer", "gold", "tool"))
TOP = 2 * MARGIN + 2 * LINE  # of the first pictures, below a heading of one line and their titles


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
    opening = Turn("user", "Where is it?", images=(picture,), views=(ShownView(0),))
    turns = [opening, Turn("assistant", "Here.")]
    if turn:
        turns += [Turn("tool_result", **turn), Turn("assistant", "There.")]
    return Episode(task, tuple(turns), answer)


def panels(episode):
    return list_panels(build_episode_page(episode, line=1))


def panel(picture, number=0, size=(SIDE, SIDE)):
    left = MARGIN + number * (SIDE + MARGIN)
    return np.asarray(picture)[TOP : TOP + size[1], left : left + size[0]]


def frame(pixels, color):
    """What lies inside the outline of a color, as fractions of the pixels."""
    edge = next(thickness for shade, thickness in KINDS.values() if shade == color)
    rows, columns = np.nonzero((pixels == color).all(axis=2))
    height, width = pixels.shape[:2]
    left, right = (columns.min() + edge) / width, (columns.max() + 1 - edge) / width
    return left, (rows.min() + edge) / height, right, (rows.max() + 1 - edge) / height


def has(pixels, color):
    return bool((pixels == color).all(axis=2).any())


def read_texts(monkeypatch, *episodes):
    """Every text on the sheets of the episodes."""
    lines = []
    write = contact_sheet.ImageDraw.ImageDraw.text
    monkeypatch.setattr(
        contact_sheet.ImageDraw.ImageDraw, "text", lambda *given: (lines.append(given[2]), write(*given))
    )
    for episode in episodes:
        draw_episode(episode, line=3)
    return "\n".join(lines)


# ---------------------------------------------------------------------- panels
@each("looks", [0, 1, 3])
def test_there_is_a_panel_for_every_image_the_model_was_shown(looks):
    episode = right(0, looks)
    assert [one.picture for one in panels(episode)] == [f"p{number}" for number in range(1 + looks)]
    assert draw_episode(episode).width == max(3, 1 + looks) * (SIDE + MARGIN) + MARGIN


def test_every_panel_shows_its_own_image():
    episode = right(0)
    images = [turn.images[0].open() for turn in episode.turns if turn.images]
    picture = draw_episode(episode)
    for number, image in enumerate(images):
        shown = np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.NEAREST))
        assert (panel(picture, number) == shown).all(axis=2).mean() > 0.96  # all but the frames drawn on it


def test_many_panels_stand_in_rows_and_the_last_says_how_many_more_there_are():
    episode = of_image(Image.new("L", (8, 8)), {})
    more = (Turn("tool_result", "", tool_results=(ToolResult("zoom", error="no"),)),) * 100
    long = replace(episode, turns=episode.turns + more)
    picture = draw_episode(long)
    assert picture.width == ACROSS * (SIDE + MARGIN) + MARGIN
    assert picture.height < SIDE + (MAX_PANELS / ACROSS + 2) * 6 * LINE
    assert contact_sheet._cut_panels(panels(long))[-1].title == "… and 42 more"


def test_an_image_keeps_its_aspect_ratio():
    picture = draw_episode(of_image(Image.new("L", (80, 20), 200), {"at": [0.1, 0.2, 0.5, 0.8]}))
    pixels = panel(picture, size=(SIDE, SIDE // 4))
    np.testing.assert_allclose(frame(pixels, GREEN), (0.1, 0.2, 0.5, 0.8), atol=0.02)
    assert (panel(picture)[SIDE // 4 : SIDE // 4 + LINE // 2 - 1] == 255).all()


def test_a_failed_tool_call_shows_its_error():
    result = ToolResult("zoom", error="zoom: factor = 0; allowed: 1 to 16")
    episode = of_image(Image.new("L", (8, 8)), {}, content="", tool_results=(result,))
    first, second = panels(episode)
    assert (first.notes, [text for text, _ in second.notes]) == ((), [f"zoom: {result.error}"])
    drawn = panel(draw_episode(episode), 1)
    assert (drawn[..., 0] > drawn[..., 1]).any()  # red words


def test_a_picture_that_cannot_be_opened_is_named_and_the_rest_is_drawn(tmp_path, monkeypatch):
    with EpisodeWriter(tmp_path) as writer:
        writer.append(right(0))
    [episode] = load(tmp_path)
    next((tmp_path / "images").rglob(f"{episode.turns[0].images[0].hash}.png")).write_bytes(b"junk")
    assert has(panel(draw_episode(episode), 1), GREEN)
    assert "image" in read_texts(monkeypatch, episode)


def test_an_empty_episode_can_be_drawn():
    assert draw_episode(replace(of_image(Image.new("L", (8, 8)), {}), turns=())).width > SIDE


# ---------------------------------------------------------------------- boxes
def test_the_gold_box_is_green_and_the_answer_red_at_their_places():
    episode = wrong(0)
    pixels = panel(draw_episode(episode))
    np.testing.assert_allclose(frame(pixels, RED), (0.1, 0.2, 0.3, 0.4), atol=0.01)
    np.testing.assert_allclose(frame(pixels, GREEN), episode.task.reference["bbox"], atol=0.01)


def test_boxes_are_drawn_where_a_later_picture_shows_them():
    episode = right(0)
    x1, y1, x2, y2 = episode.task.reference["bbox"]
    a1, b1, a2, b2 = episode.turns[2].tool_results[0].views[0].corners
    inside = ((x1 - a1) / (a2 - a1), (y1 - b1) / (b2 - b1), (x2 - a1) / (a2 - a1), (y2 - b1) / (b2 - b1))
    np.testing.assert_allclose(frame(panel(draw_episode(episode), 1), GREEN), inside, atol=0.01)


def test_what_the_next_call_zooms_in_on_is_blue():
    episode = right(0)
    pixels = panel(draw_episode(episode))
    np.testing.assert_allclose(frame(pixels, BLUE), episode.turns[2].tool_results[0].views[0].corners, atol=0.01)
    assert not has(panel(draw_episode(episode), 1), BLUE)


def test_an_episode_without_an_answer_shows_the_gold_box_alone():
    episode = played(0, *["hm"] * 10)
    assert episode.answer is None
    pixels = panel(draw_episode(episode))
    assert has(pixels, GREEN)
    assert not has(pixels, RED)


def test_both_boxes_are_seen_where_they_are_equal():
    box = [0.25, 0.25, 0.75, 0.75]
    pixels = panel(draw_episode(of_image(Image.new("L", (64, 64)), {"at": box}, {"at": box})))
    assert (pixels == GREEN).all(axis=2).sum() > SIDE
    assert (pixels == RED).all(axis=2).sum() > SIDE
    np.testing.assert_allclose(frame(pixels, GREEN), box, atol=0.005)


def test_boxes_are_found_in_any_field_of_any_environment():
    picture = draw_episode(of_image(Image.new("L", (64, 64)), {"lesion": [0.5, 0.5, 0.9, 0.9]}))
    np.testing.assert_allclose(frame(panel(picture), GREEN), (0.5, 0.5, 0.9, 0.9), atol=0.01)


# ---------------------------------------------------------------------- texts
def test_the_task_its_question_and_the_scores_are_written_above_and_below(monkeypatch):
    episode = wrong(0)
    written = read_texts(monkeypatch, episode, of_image(Image.new("L", (8, 8)), {"n": 1}))
    assert written.startswith(f"#3 {episode.task.id}: ")
    assert "scan-7: Where is it?" in written
    assert f'"label": "{episode.task.reference["label"]}"' in written
    assert f"reward: {episode.scores.total:.2f}" in written
    assert "no answer (answered)" in written


def test_what_ended_an_episode_and_what_failed_is_written(monkeypatch):
    episode = of_image(Image.new("L", (8, 8)), {})
    scores = Scores(None, faults={"judge": "could not be reached"})
    fault = replace(episode, end_reason="error", info={"error": "the disk is full"}, scores=scores)
    written = read_texts(monkeypatch, fault)
    assert "error: the disk is full" in written
    assert "judge failed: could not be reached" in written


# ---------------------------------------------------------------------- which episode
def test_without_a_line_the_best_episode_that_used_a_tool_is_drawn(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        for episode in (wrong(0), right(1, looks=0), right(2), played(3, *["hm"] * 10)):
            writer.append(episode)
    best, line = find_best_episode(str(tmp_path))
    assert (best.task.id, line) == ("digits-train-2", 3)


def test_without_tools_the_best_episode_is_drawn(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        for episode in (played(3, *["hm"] * 10), right(1, looks=0)):
            writer.append(episode)
    assert find_best_episode(str(tmp_path))[0].task.id == "digits-train-1"


def test_any_episode_is_drawn_by_its_line(viewbox, tmp_path):
    with EpisodeWriter(tmp_path / "run") as writer:
        for episode in (right(4), played(5, *["hm"] * 10)):
            writer.append(episode)
    run = str(tmp_path / "run")
    assert [load_episode(run, n)[0].task.id for n in (1, 2)] == ["digits-train-4", "digits-train-5"]
    assert viewbox("view", f"{run}#2", "--out", tmp_path / "a.png")[0] == 0
    with pytest.raises(StoreError, match="line 3: there is no episode in this line; allowed: 1 to 2"):
        load_episode(run, 3)
    (tmp_path / "label.yaml").write_text("type: exact_match\nfield: label\n")
    status, out, _ = viewbox("reward", "try", tmp_path / "label.yaml", "--episode", f"{run}#1", "--format", "json")
    assert (status, json.loads(out)["total"]) == (0, 1.0)


def test_a_line_that_cannot_be_read_is_named_with_the_reason(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        writer.append(right(4))
    with (tmp_path / "episodes.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(StoreError, match="line 2: not an episode"):
        load_episode(str(tmp_path), 2)
