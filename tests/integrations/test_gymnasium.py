"""The Gymnasium adapter: Gymnasium's own checker, spaces, seeds, vectors, and what must not end a run."""

import asyncio
import warnings

import numpy as np
import pytest
from PIL import Image

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit  # noqa: E402

from viewbox.envs.digits import Digits  # noqa: E402
from viewbox.errors import ConfigError  # noqa: E402
from viewbox.images.ref import ImageRef  # noqa: E402
from viewbox.integrations.gymnasium import MAX_TEXT, ViewboxGymEnv  # noqa: E402
from viewbox.records import Episode  # noqa: E402
from viewbox.registry import ENVIRONMENTS  # noqa: E402

ENV = Digits(num_tasks=9)
RIGHT = [ENV.write_answer(task) for task in ENV.tasks]
LOOKS = [ENV.oracle(task)[0] for task in ENV.tasks]


class Shapes(Digits):
    """Shows a wide picture first, and breaks on the answer `zero`."""

    name = "shapes"

    def images(self, task):
        return [Image.new("RGB", (400, 100), (10, 20, 30))]

    def on_answer(self, state, answer):
        if answer["label"] == "zero":
            raise ValueError("the author's bug")


class Two(Digits):
    """Shows two pictures of different size first, and has no score."""

    name = "two"

    def images(self, task):
        return [Image.new("RGB", (40, 40), (10, 20, 30)), Image.new("RGB", (20, 30), (90, 90, 90))]

    def default_reward(self):
        def ask_nobody(answer, reference):
            raise ValueError("nobody answers")

        return ask_nobody


def make_env(**settings):
    return gymnasium.make("viewbox/digits-v0", **{"num_tasks": 9} | settings)


def make_own(cls, **settings):
    return ViewboxGymEnv(f"{__file__}:{cls.__name__}", **{"num_tasks": 3} | settings)


def test_gymnasiums_own_checker_passes_without_a_warning_and_a_seed_fixes_the_task_and_the_observation():
    assert {f"viewbox/{name}-v0" for name in ENVIRONMENTS} <= set(gymnasium.registry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make_env(render_mode="rgb_array").unwrapped)
    env = make_env()
    first, again = (env.reset(seed=5) for _ in range(2))
    assert first[1]["task"] == again[1]["task"]
    assert (first[0]["image"] == again[0]["image"]).all()
    for seeds in (range(20), [None] * 20):  # without a seed, the sequence goes on
        assert len({env.reset(seed=seed)[1]["task"] for seed in seeds}) > 4


def test_an_episode_shows_the_newest_picture_and_ends_with_the_score_of_the_environment_and_its_record():
    env = make_env(render_mode="rgb_array")
    observation, info = env.reset(options={"task": 2}, seed=0)
    overview = observation["image"]
    assert observation in env.observation_space
    assert info["task"] == ENV.tasks[2].id
    assert info["tools"][0]["function"]["name"] == "zoom"
    observation, reward, terminated, truncated, info = env.step(LOOKS[2])
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert [message["role"] for message in info["messages"]] == ["assistant", "user"]
    assert "zoomed" in observation["text"]
    closer = observation["image"]
    assert (overview != closer).any()
    assert (env.render() == closer).all()
    assert not env.step("no JSON")[0]["image"].any()  # nothing new is shown
    assert (env.render() == closer).all()
    *_, reward, terminated, truncated, info = env.step(RIGHT[2])
    assert (terminated, truncated, info["end_reason"]) == (True, False, "answered")
    assert isinstance(info["record"], Episode)
    assert reward == info["record"].scores.total > 0.9


def test_pictures_are_fitted_and_laid_side_by_side_and_whole_in_the_messages():
    env = make_own(Shapes, image_size=(50, 60))
    observation, info = env.reset(seed=0)
    assert observation["image"].shape == (50, 60, 3)
    assert observation["image"][:15].any()
    assert not observation["image"][16:].any()
    (image,) = [image for message in env.session.state.messages for image in message.images]
    assert isinstance(image, ImageRef)
    assert info["messages"][1]["content"][0]["image_url"]["url"] == image.to_data_url()
    env = make_own(Two)
    observation, info = env.reset(seed=0)
    laid = np.zeros((40, 60, 3), np.uint8)
    laid[:, :40], laid[:30, 40:] = (10, 20, 30), 90
    assert np.array_equal(observation["image"], laid)
    assert str(info["messages"]).count("data:image/png") == 2
    opened = '<tool_call>{"name": "open_image", "arguments": {"image": "image_2"}}</tool_call>'
    laid[:], laid[:30, :20] = 0, 90  # a later observation has the newest
    assert np.array_equal(env.step(opened)[0]["image"], laid)


def test_a_bug_of_the_environment_costs_its_episode_and_one_without_a_score_says_so():
    env = make_own(Shapes)
    env.reset(seed=0)
    *_, reward, terminated, truncated, info = env.step('{"label": "zero", "bbox": [0, 0, 9, 9]}')
    assert (reward, terminated, truncated, info["end_reason"]) == (0.0, False, True, "error")
    assert "the author's bug" in info["no_score"]
    env.reset(seed=0)
    assert env.step('{"label": "one", "bbox": [0, 0, 9, 9]}')[2]
    env = make_own(Two)
    env.reset(seed=0)
    *_, reward, _, _, info = env.step(RIGHT[0])
    assert reward == 0.0
    assert "nobody answers" in info["no_score"]


def test_no_reply_raises_and_other_actions_tasks_that_do_not_exist_and_settings_are_refused():
    env = make_env(disable_env_checker=True)
    for text in ("", "\ud800", "\x00" * 10, "<|im_end|>", "é✓漢", "[" * 100_000, "x" * (MAX_TEXT + 1)):
        env.reset(seed=0)
        observation, *_ = env.step(text)
        assert observation in env.observation_space
    for action in (None, 3, b"text", ["text"], {"text": "a"}):
        with pytest.raises(TypeError, match="an action is the model's reply as text; given"):
            env.step(action)
    for number in (-1, 9, "1", 1.5, None):
        with pytest.raises(ConfigError, match=r"options.task: .*; allowed: 0 to 8"):
            env.reset(options={"task": number})
    with pytest.raises(ConfigError, match="max_turn"):
        make_env(max_turn=3)
    with pytest.raises(ConfigError, match="render_mode: 'human'"):
        ViewboxGymEnv("digits", render_mode="human")


def test_vectors_give_what_single_environments_give():
    given = {"vectorization_mode": "async", "vector_kwargs": {"shared_memory": False}}  # it fits no texts of any length
    envs = gymnasium.make_vec("viewbox/digits-v0", num_envs=3, num_tasks=9, **given)
    try:
        observation, info = envs.reset(seed=[4, 5, 6])
        single = [make_env().reset(seed=seed) for seed in (4, 5, 6)]
        assert list(info["task"]) == [one[1]["task"] for one in single]
        assert (observation["image"] == np.stack([one[0]["image"] for one in single])).all()
        assert observation["text"] == tuple(one[0]["text"] for one in single)
        numbers = [next(n for n, task in enumerate(ENV.tasks) if task.id == name) for name in info["task"]]
        _, rewards, terminated, truncated, info = envs.step([RIGHT[number] for number in numbers])
        assert (rewards > 0.9).all()
        assert terminated.all()
        assert not truncated.any()
        assert list(info["end_reason"]) == ["answered"] * 3
    finally:
        envs.close()


def test_it_works_inside_a_running_event_loop_with_gymnasiums_wrappers_and_a_mixture_hands_its_tasks_on():
    async def play():
        env = RecordEpisodeStatistics(TimeLimit(make_env(), 2))
        env.reset(options={"task": 1})
        env.step(LOOKS[1])
        return env.step(RIGHT[1])

    *_, reward, terminated, _, info = asyncio.run(play())
    assert terminated
    assert info["episode"]["r"] == reward == info["record"].scores.total
    digits = {"name": "digits", "num_tasks": 2}
    env = ViewboxGymEnv("mixture", environments={"digits": digits, "hard": digits})
    env.reset(seed=0, options={"task": 1})
    *_, reward, terminated, _, info = env.step(env.session.played.write_answer(env.session.state.task))
    assert terminated
    assert info["record"].task.id.startswith("hard/")
    assert reward > 0.9
