"""What thousands of episodes have in common is in memory once, and let go when nobody holds it any more."""

import asyncio
import gc
import json
import weakref
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image
from pydantic import BaseModel

from viewbox import tools
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.images.ref import ImageRef
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward


class Finding(BaseModel):
    label: str


class Look(BaseMultiTurnEnv):
    name = "look"
    answer: ClassVar = Finding

    def default_reward(self):
        return ExactMatchReward("label")


def noise(seed=0, size=(40, 60)):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


@pytest.fixture
def path(tmp_path):
    Image.fromarray(noise()).save(tmp_path / "a.png")
    return str(tmp_path / "a.png")


def task(path, name="t"):
    return Task(name, (ImageRef("0" * 64, 60, 40, "L", path),), {"question": f"What is in {name}?"})


def step(env, state, name, **arguments):
    said = f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"
    (message,) = asyncio.run(env.step(state, said)).messages
    return message.images[0]


# ---- pictures by their content
def test_equal_pictures_are_one_reference_that_does_not_follow_its_array_and_is_let_go_when_nobody_holds_it():
    one, other = ImageRef.of(noise()), ImageRef.of(noise())
    assert one is other
    assert ImageRef.of(noise(1)) is not one
    pixels = noise()
    ref = ImageRef.of(pixels)
    pixels[:] = 0
    assert (np.asarray(ImageRef.of(noise()).open()) == noise()).all()
    assert (np.asarray(ref.open()) == noise()).all()
    ref = ImageRef.of(noise(2))  # which nobody else holds
    pixels = weakref.ref(ref.pixels)
    del ref
    gc.collect()
    assert pixels() is None


# ---- sources, views, openings
def test_the_episodes_of_a_task_and_tasks_of_one_file_share_pixels_opening_picture_and_text(path):
    env = Look()
    one, other = (env.reset(task(path), seed=seed) for seed in (0, 1))
    for first, second in zip(one.messages, other.messages, strict=True):
        for part, same in zip(first.content, second.content, strict=True):
            assert part is same
    assert one.view is other.view
    env = Look(max_pixels=600)
    one, other = (env.reset(task(path, name), seed=0) for name in ("a", "b"))
    assert one.view is other.view
    assert one.messages[1].images[0] is other.messages[1].images[0]


def test_episodes_that_look_at_the_same_place_share_the_pixels_of_the_view(path):
    env = Look()
    one, other = (env.reset(task(path), seed=seed) for seed in (0, 1))
    first, second = (step(env, state, "zoom", factor=2) for state in (one, other))
    assert first is second
    assert one.view is not other.view
    assert np.shares_memory(one.view.get_values(), other.view.get_values())
    assert np.shares_memory(one.view.get_values(), first.pixels)


def test_views_of_deeper_images_keep_their_own_values_and_share_the_picture():
    source = Source.of(noise().astype(np.uint16) * 17)
    one, other = View.of(source), View.of(source)
    (after, first), (_, second) = (tools.call_stateful("zoom", view, {"factor": 2}) for view in (one, other))
    assert first.image is second.image
    assert after.get_values().dtype == np.uint16


def test_a_file_that_changed_is_read_again_once_nobody_looks_at_the_old_one(path):
    before = Look().reset(task(path), seed=0).messages[1].images[0].hash
    gc.collect()
    Image.fromarray(noise(1)).save(path)
    assert Look().reset(task(path), seed=0).messages[1].images[0].hash != before
