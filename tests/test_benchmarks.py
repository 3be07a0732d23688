"""The benchmarks' own pieces: what would rot unseen, since nobody times things in the tests."""

import importlib.util
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from viewbox.envs import tools
from viewbox.envs.image import View

FOLDER = Path(__file__).parents[1] / "benchmarks"


def load(name):
    """A benchmark by its path: the folder is no package, and a module called `tools` would shadow ours."""
    spec = importlib.util.spec_from_file_location(f"viewbox_benchmark_{name}", FOLDER / f"{name}.py")
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TIMED, VIEWS, STEP = load("tools"), load("views"), load("env_step")


def test_every_registered_tool_is_timed_or_known_to_have_no_counterpart():
    assert set(tools.TOOLS) <= {row.tool for row in TIMED.ROWS} | TIMED.ONLY_OURS


@pytest.mark.parametrize("row", TIMED.ROWS, ids=lambda row: row.name)
def test_the_arguments_of_a_row_are_accepted(row):
    view = View.of(TIMED.picture(64))
    for name, arguments in filter(None, (row.before, (row.tool, row.arguments))):
        view, result = tools.call(name, view, arguments)
        assert result.error is None


def test_rows_have_names_of_their_own():
    assert len({row.name for row in TIMED.ROWS}) == len(TIMED.ROWS)


@pytest.mark.parametrize("encoded", [False, True])
def test_our_side_runs_a_row_on_the_view_it_prepared(encoded):
    import asyncio

    ours = TIMED.Ours(TIMED.picture(64), 64 * 64, encoded)
    row = next(row for row in TIMED.ROWS if row.before is not None)
    ours.prepare(row)
    assert ours.view is not ours.overview
    asyncio.run(ours.run(row))


def test_the_picture_is_the_same_for_a_seed():
    assert (np.asarray(TIMED.picture(64)) == np.asarray(TIMED.picture(64))).all()
    assert (np.asarray(TIMED.picture(64)) != np.asarray(TIMED.picture(64, seed=1))).any()


def test_every_tool_that_changes_the_view_is_drawn_in_chains():
    view = View.of(VIEWS.picture(64))
    reading = {row.tool for row in TIMED.ROWS} - set(VIEWS.DRAWS)
    for row in (row for row in TIMED.ROWS if row.tool in reading):
        assert (
            tools.get(row.tool).run(view, **tools.get(row.tool).arguments(row.arguments, "unit", view.size)).view
            is None
        )


@pytest.mark.parametrize("seed", range(4))
def test_a_chain_of_a_seed_plays_on_a_small_image(seed):
    view = View.of(VIEWS.picture(128), max_pixels=32 * 32)
    steps = VIEWS.chain(view, seed, length=10)
    assert steps == VIEWS.chain(view, seed, length=10)
    assert len(VIEWS.play(view, steps)) == len(steps) == 10


def test_a_chain_mixes_geometry_and_intensity():
    families = {tools.get(name).family for name, _ in VIEWS.chain(View.of(VIEWS.picture(128)), 0)}
    assert {"geometry", "intensity"} <= families


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_the_memory_of_a_chain_is_measured_in_a_process_of_its_own(tmp_path):
    np.save(tmp_path / "image.npy", VIEWS.picture(128))
    steps = VIEWS.chain(View.of(VIEWS.picture(128), max_pixels=32 * 32), 0, length=3)
    assert 0 <= VIEWS.peak(tmp_path / "image.npy", steps) < 1000


def test_what_is_drawn_is_within_the_ranges_of_the_tools():
    draw, view = random.Random(0), View.of(VIEWS.picture(64))
    for name in set(VIEWS.DRAWS) & set(tools.TOOLS):
        for _ in range(20):
            given = VIEWS.DRAWS[name](draw)
            assert set(tools.get(name).arguments(given, "unit", view.size)) == set(given)


def test_every_kind_of_step_that_is_timed_is_what_its_name_says():
    import asyncio

    env = STEP.Bench()
    (task,) = STEP._tasks([STEP.ImageRef.of(STEP.np.zeros((8, 8), STEP.np.uint8))], 1)
    told = {}
    for name, reply in STEP.STEPS.items():
        result = asyncio.run(env.step(env.reset(task, seed=0), reply))
        told[name] = result.end_reason or (result.messages[0].role, result.messages[0].text)
    assert told["answer"] == "answered"
    assert "ticked" in told["viewer tool"][1]
    assert all("nothing is known" in told[name][1] for name in ("free tool, async", "free tool, in a thread"))
    assert "no JSON object" in told["nudge"][1]
    assert "label" in told["nudge: schema"][1]
    assert "notes" in told["notes"][1]


@pytest.mark.parametrize("how", ["rss", "tracemalloc"])
def test_what_episodes_in_flight_hold_is_measured_while_all_of_them_are(how):
    found = STEP.held(how, episodes=12, images=4)
    assert found["pictures"] == 8  # each image, and the one view that all look at
    assert found["pixels"] == 8 * STEP.SIDE**2
