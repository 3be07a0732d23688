"""One episode as a picture: a panel for each image, the gold box green and the answered one red."""

import numpy as np
import pytest
from PIL import Image

from viewbox.cli.picture import LINE, MARGIN, SIDE, best, draw
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import StoreError
from viewbox.rollouts.store.writer import EpisodeWriter

ENV = Digits()
GREEN, RED = (0, 128, 0), (255, 0, 0)


def played(number, *replies):
    said = iter(replies)
    return ENV.play(ENV.tasks[number], lambda messages: next(said))


def right(number, looks=1):
    task = ENV.tasks[number]
    return played(number, *[viewer.gold_look(ENV, task)] * looks, viewer.answer(ENV, task))


def wrong(number):
    box = '{"label": "one", "bbox": [100, 200, 300, 400], "continue": false}'
    return played(number, viewer.call(ENV, 2, 0.5, 0.5), box)


def drawn(episode, tmp_path):
    draw(episode, str(tmp_path / "episode.png"))
    return Image.open(tmp_path / "episode.png").convert("RGB")


def frame(pixels, color):
    """The bounding box of a color in the first panel, as fractions of it."""
    panel = np.asarray(pixels)[24 : 24 + SIDE, MARGIN : MARGIN + SIDE]
    rows, columns = np.nonzero((panel == color).all(axis=2))
    return columns.min() / SIDE, rows.min() / SIDE, columns.max() / SIDE, rows.max() / SIDE


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_there_is_a_panel_for_every_image_the_model_was_shown(tmp_path, looks):
    picture = drawn(right(0, looks), tmp_path)
    assert picture.size == ((1 + looks) * (SIDE + MARGIN) + MARGIN, SIDE + 9 * LINE)


def test_every_panel_shows_its_own_image(tmp_path):
    episode = right(0)
    overview, look = (turn.images[0].open() for turn in episode.turns if turn.images)
    pixels = np.asarray(drawn(episode, tmp_path))
    for i, image in enumerate((overview, look)):
        left = MARGIN + i * (SIDE + MARGIN)
        shown = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.NEAREST)
        same = (pixels[24 : 24 + SIDE, left : left + SIDE] == np.asarray(shown)).all(axis=2)
        assert same.mean() > 0.97  # all but the frames drawn on it


def test_the_gold_box_is_green_and_the_answer_red_at_their_places(tmp_path):
    episode = wrong(0)
    picture = drawn(episode, tmp_path)
    np.testing.assert_allclose(frame(picture, RED), (0.1, 0.2, 0.3, 0.4), atol=0.01)
    np.testing.assert_allclose(frame(picture, GREEN), episode.task.reference["bbox"], atol=0.01)


def test_an_episode_without_an_answer_shows_the_gold_box_alone(tmp_path):
    episode = played(0, *["hm"] * 10)
    assert episode.answer is None
    pixels = np.asarray(drawn(episode, tmp_path))
    assert (pixels == GREEN).all(axis=2).any()
    assert not (pixels == RED).all(axis=2).any()


def test_the_best_episodes_that_looked_come_first(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        for episode in (wrong(0), right(1, looks=0), right(2), played(3, *["hm"] * 10)):
            writer.append(episode)
    assert [best(str(tmp_path), i).task.id for i in range(2)] == ["digits-train-2", "digits-train-0"]
    with pytest.raises(StoreError, match="2 episodes used a tool and answered; episode 2 was asked for"):
        best(str(tmp_path), 2)
