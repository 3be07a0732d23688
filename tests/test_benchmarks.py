"""The benchmarks' own pieces: what would rot unseen, since nobody times things in the tests."""

import importlib.util
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

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
SCORING, HACKING = load("scoring"), load("reward_hacking")


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


def test_the_replies_that_are_scored_are_all_different_and_the_same_for_a_seed():
    given = SCORING.cases(tasks=20, group=8)
    assert given == SCORING.cases(tasks=20, group=8)
    assert len({case.reply for case in given}) == len(given) == 160


def test_the_scores_that_are_timed_are_of_every_kind():
    scores = [SCORING.ours().score(case.answer, case.reference)[1] for case in SCORING.cases(tasks=20)]
    assert {score["label"] for score in scores} == {0.0, 1.0}
    assert all(
        min(score[part] for score in scores) < max(score[part] for score in scores) for part in ("report", "box")
    )


def test_a_reply_that_is_read_scores_as_the_answer_in_it():
    reward = SCORING.ours()
    for case in SCORING.cases(tasks=5):
        assert SCORING.read_and_score(reward, case) == reward.score(case.answer, case.reference)[0]


def test_the_two_runs_of_reward_hacking_differ_in_the_gate_only():
    from viewbox import config
    from viewbox.training.check import check

    found = {}
    for name in HACKING.RUNS:
        loaded = config.load(str(FOLDER / "reward_hacking.yaml"), HACKING.overrides(name))
        check(loaded)
        found[name] = loaded.model_dump()
    assert found["gated"]["reward"]["components"]["bonus"].pop("needs") == {"label": 1.0}
    assert found["gated"] == found["naive"]


def test_the_naive_bonus_pays_for_every_call():
    from types import SimpleNamespace

    assert [HACKING.a_call(SimpleNamespace(tool_call_count=n)) for n in (0, 1, 5, 9)] == [0.0, 0.2, 1.0, 1.0]


@pytest.mark.parametrize(
    ("calls", "label", "expected"), [(7.0, [0.4, 0.0], True), (1.0, [0.4, 0.8], False), (7.0, [0.4, 0.9], False)]
)
def test_a_run_has_collapsed_where_it_calls_tools_and_does_not_read(calls, label, expected):
    assert HACKING.collapsed({"last": {"tools/calls": calls}, "held_out_label": label}) is expected


def test_both_runs_are_drawn_also_while_one_is_behind(tmp_path):
    for name, steps in (("naive", 3), ("gated", 7)):
        (tmp_path / name).mkdir()
        lines = [{"step": n, **dict.fromkeys(HACKING.PANELS, n / 10)} for n in range(1, steps + 1)]
        (tmp_path / name / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    HACKING.draw({name: tmp_path / name for name in HACKING.RUNS}, tmp_path / "drawn.png")
    assert Image.open(tmp_path / "drawn.png").size == (1200, 360)
