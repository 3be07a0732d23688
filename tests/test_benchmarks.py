"""The benchmarks' own pieces: what would rot unseen, since nobody times things in the tests."""

import importlib.util
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support import forks
from viewbox import tools
from viewbox.images.view import View

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


def load(name):
    """A benchmark by its path: the folder is no package, and a module called `tools` would shadow ours."""
    spec = importlib.util.spec_from_file_location(f"viewbox_benchmark_{name}", FOLDER / f"{name}.py")
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    sys.path.append(str(FOLDER))  # where a script finds its neighbors
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


TIMED, VIEWS, STEP = load("tools"), load("views"), load("env_step")
SCORING, HACKING = load("scoring"), load("reward_hacking")


def test_every_registered_tool_is_timed_or_known_to_have_no_counterpart():
    assert set(tools.TOOLS) <= {row.tool for row in TIMED.ROWS} | TIMED.ONLY_OURS


@pytest.mark.parametrize("row", TIMED.ROWS, ids=lambda row: row.name)
def test_the_arguments_of_a_row_are_accepted(row):
    view = View.of(TIMED.make_image(64))
    for name, arguments in filter(None, (row.before, (row.tool, row.arguments))):
        view, result = tools.call_stateful(name, view, arguments)
        assert result.error is None


@pytest.mark.filterwarnings("ignore")
def test_every_installed_adapter_is_timed_on_episodes_that_are_answered_right(capsys):
    pytest.importorskip("verifiers")
    rows = load("adapters").measure(3, 1)
    assert {"driver", "gymnasium", "trl", "verifiers", "inspect_ai"} <= set(rows)
    assert all(row["median_ms"] > 0 for name, row in rows.items() if name != "inspect_ai")


def test_rows_have_names_of_their_own():
    assert len({row.name for row in TIMED.ROWS}) == len(TIMED.ROWS)


@pytest.mark.parametrize("encoded", [False, True])
def test_our_side_runs_a_row_on_the_view_it_prepared(encoded):
    import asyncio

    ours = TIMED.ViewboxSide(TIMED.make_image(64), 64 * 64, encoded)
    row = next(row for row in TIMED.ROWS if row.before is not None)
    ours.prepare(row)
    assert ours.view is not ours.overview
    asyncio.run(ours.run(row))


def test_the_picture_is_the_same_for_a_seed():
    assert (np.asarray(TIMED.make_image(64)) == np.asarray(TIMED.make_image(64))).all()
    assert (np.asarray(TIMED.make_image(64)) != np.asarray(TIMED.make_image(64, seed=1))).any()


def test_every_tool_that_changes_the_view_is_drawn_in_chains():
    view = View.of(VIEWS.make_image(64))
    reading = {row.tool for row in TIMED.ROWS} - set(VIEWS.DRAWS)
    for row in (row for row in TIMED.ROWS if row.tool in reading):
        tool = tools.get_tool(row.tool)
        assert tool.function(view, **tool.check_arguments(row.arguments, "unit", view.size)).view is None


@pytest.mark.parametrize("seed", range(4))
def test_a_chain_of_a_seed_plays_on_a_small_image(seed):
    view = View.of(VIEWS.make_image(128), max_pixels=32 * 32)
    steps = VIEWS.draw_chain(view, seed, length=10)
    assert steps == VIEWS.draw_chain(view, seed, length=10)
    assert len(VIEWS.time_calls(view, steps)) == len(steps) == 10


def test_a_chain_mixes_geometry_and_intensity():
    families = {tools.get_tool(name).family for name, _ in VIEWS.draw_chain(View.of(VIEWS.make_image(128)), 0)}
    assert {"geometry", "intensity"} <= families


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_the_memory_of_a_chain_is_measured_in_a_process_of_its_own(tmp_path):
    np.save(tmp_path / "image.npy", VIEWS.make_image(128))
    steps = VIEWS.draw_chain(View.of(VIEWS.make_image(128), max_pixels=32 * 32), 0, length=3)
    assert 0 <= VIEWS.measure_peak_in_process(tmp_path / "image.npy", steps) < 1000


def test_what_is_drawn_is_within_the_ranges_of_the_tools():
    draw, view = random.Random(0), View.of(VIEWS.make_image(64))
    for name in set(VIEWS.DRAWS) & set(tools.TOOLS):
        for _ in range(20):
            given = VIEWS.DRAWS[name](draw)
            assert set(tools.get_tool(name).check_arguments(given, "unit", view.size)) == set(given)


def test_every_kind_of_step_that_is_timed_is_what_its_name_says():
    import asyncio

    env = STEP.Bench()
    (task,) = STEP._build_tasks([STEP.ImageRef.of(STEP.np.zeros((8, 8), STEP.np.uint8))], 1)
    told = {}
    for name, reply in STEP.STEPS.items():
        result = asyncio.run(env.step(env.reset(task, seed=0), reply))
        told[name] = result.end_reason or (result.messages[0].role, result.messages[0].text)
    assert told["answer"] == "answered"
    assert "ticked" in told["stateful tool"][1]
    assert all("nothing is known" in told[name][1] for name in ("stateless tool, async", "stateless tool, in a thread"))
    assert "no JSON object" in told["nudge"][1]
    assert "label" in told["nudge: schema"][1]
    assert "notes" in told["notes"][1]


@pytest.mark.parametrize("how", ["rss", "tracemalloc"])
def test_what_episodes_in_flight_hold_is_measured_while_all_of_them_are(how):
    found = STEP.measure_held(how, episodes=12, images=4)
    assert found["pictures"] == 8  # each image, and the one view that all look at
    assert found["pixels"] == 8 * STEP.SIDE**2


def test_the_replies_that_are_scored_are_all_different_and_the_same_for_a_seed():
    given = SCORING.draw_cases(tasks=20, group=8)
    assert given == SCORING.draw_cases(tasks=20, group=8)
    assert len({case.reply for case in given}) == len(given) == 160


def test_the_scores_that_are_timed_are_of_every_kind():
    scores = [SCORING.build_reward().score(case.answer, case.reference)[1] for case in SCORING.draw_cases(tasks=20)]
    assert {score["label"] for score in scores} == {0.0, 1.0}
    assert all(
        min(score[part] for score in scores) < max(score[part] for score in scores) for part in ("report", "box")
    )


def test_a_reply_that_is_read_scores_as_the_answer_in_it():
    reward = SCORING.build_reward()
    for case in SCORING.draw_cases(tasks=5):
        assert SCORING.read_and_score(reward, case) == reward.score(case.answer, case.reference)[0]


def test_the_two_runs_of_reward_hacking_differ_in_the_gate_only():
    from viewbox.configs import schema
    from viewbox.training.checks.preflight import check

    found = {}
    for name in HACKING.RUNS:
        loaded = schema.load(str(FOLDER / "reward_hacking.yaml"), HACKING.build_overrides(name))
        check(loaded)
        found[name] = loaded.model_dump()
    assert found["gated"]["reward"]["components"]["bonus"].pop("needs") == {"label": 1.0}
    assert found["gated"] == found["naive"]


def test_the_naive_bonus_pays_for_every_call():
    from types import SimpleNamespace

    assert [HACKING.reward_calls(SimpleNamespace(tool_call_count=n)) for n in (0, 1, 5, 9)] == [0.0, 0.2, 1.0, 1.0]


@pytest.mark.parametrize(
    ("calls", "label", "expected"), [(7.0, [0.4, 0.0], True), (1.0, [0.4, 0.8], False), (7.0, [0.4, 0.9], False)]
)
def test_a_run_has_collapsed_where_it_calls_tools_and_does_not_read(calls, label, expected):
    assert HACKING.has_collapsed({"last": {"tools/calls": calls}, "held_out_label": label}) is expected


def test_both_runs_are_drawn_also_while_one_is_behind(tmp_path):
    for name, steps in (("naive", 3), ("gated", 7)):
        (tmp_path / name).mkdir()
        lines = [{"step": n, **dict.fromkeys(HACKING.PANELS, n / 10)} for n in range(1, steps + 1)]
        (tmp_path / name / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    HACKING.draw({name: tmp_path / name for name in HACKING.RUNS}, tmp_path / "drawn.png")
    assert Image.open(tmp_path / "drawn.png").size == (1200, 360)


# ---------------------------------------------------------------------- the rollout engine's
@pytest.fixture(scope="module")
def engine():
    """`rollouts.py`, with its neighbors as attributes."""
    return load("rollouts")


@pytest.fixture(scope="module")
def stage(engine):
    return engine.Stage(engine.CaseSize(2, 2, 3, 2))


@pytest.fixture
def shapes(stage):
    """A list that grows by the (rows, width) of every forward of the model."""
    found = []
    hook = stage.model.register_forward_pre_hook(
        lambda module, args, given: found.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    yield found
    hook.remove()


def completions(episodes):
    return [episode.tokens.completion_ids for episode in episodes]


def test_every_engine_with_something_left_out_plays_the_same_episodes(engine, stage):
    whole = completions(stage.play_episodes(stage.build_engine()))
    assert len(set(whole)) == len(whole) == 4
    for variant in engine.VARIANTS.values():
        assert completions(stage.play_episodes(variant.build_engine(stage), variant.build_env(stage))) == whole


@pytest.mark.parametrize("name", ["engine", "without_kept_kv", "without_all_four"])
def test_what_is_left_out_changes_the_work_and_not_the_log_probs(engine, stage, name):
    def logprobs(variant):
        stage.model.eval()
        found = stage.play_episodes(variant.build_engine(stage), engine.LooksEnv(stage.case))  # one prompt for all
        return np.concatenate([episode.tokens.logprobs for episode in found])

    plain, other = logprobs(engine.VARIANTS["engine"]), logprobs(engine.VARIANTS[name])
    assert np.abs(plain).max() > 1
    assert np.abs(plain - other).max() < 1e-4


def test_without_shared_prefill_every_member_computes_its_prompt(engine, stage):
    spent = {}
    for name in ("engine", "without_shared_prefill"):
        variant = engine.VARIANTS[name]
        generator = variant.build_engine(stage)
        (prompt,) = {len(one.tokens.prompt_ids) for one in stage.play_episodes(generator, variant.build_env(stage))}
        spent[name] = generator.stats.prefilled
    assert spent["without_shared_prefill"] - spent["engine"] == 2 * prompt


def test_without_kept_kv_every_reply_computes_all_that_stands_before_it(engine, stage):
    variant = engine.VARIANTS["without_kept_kv"]
    generator = variant.build_engine(stage)
    episodes = stage.play_episodes(generator, variant.build_env(stage))
    expected = 0
    for episode in (one.tokens for one in episodes):
        starts = [i for i, (a, b) in enumerate(zip((0, *episode.mask), episode.mask)) if (a, b) == (0, 1)]  # noqa: B905
        expected += sum(len(episode.prompt_ids) + start for start in starts)
    prompt = len(episodes[0].tokens.prompt_ids)
    assert generator.stats.prefilled == expected - 2 * prompt  # the prompt itself is shared


def test_when_all_wait_for_all_there_is_one_prefill_a_turn_and_everybody_is_decoded(engine, stage, shapes):
    variant = engine.VARIANTS["waiting_for_all"]
    stage.play(variant.build_engine(stage), variant.build_env(stage))
    turns = max(map(len, stage.scripts))
    assert sum(width > 1 for _, width in shapes) == turns
    first = next(i for i, (_, width) in enumerate(shapes) if width == 1)
    assert shapes[first : first + max(len(one[0]) for one in stage.scripts) - 1] == [(4, 1)] * (
        max(len(one[0]) for one in stage.scripts) - 1
    )


def test_without_vision_reuse_every_picture_is_looked_at_as_often_as_it_is_prefilled(engine, stage):
    looked = {}
    for name in ("engine", "without_vision_reuse"):
        variant = engine.VARIANTS[name]
        generator = variant.build_engine(stage)
        episodes = stage.play_episodes(generator, variant.build_env(stage))
        looked[name] = generator.vision_cache.num_encoded
    pictures = [image.hash for episode in episodes for image in episode.tokens.images]
    assert looked["engine"] == len(set(pictures))
    assert looked["without_vision_reuse"] == len(pictures) - 2  # two prompts are shared


def test_the_per_turn_loop_samples_as_many_tokens_as_the_engine(engine, stage):
    assert (
        engine.play_per_turn(stage)
        == stage.play(stage.build_engine())
        == sum(len(one) for script in stage.scripts for one in script)
    )


def test_the_floor_repeats_every_forward_of_the_engine_with_its_own_shapes(engine, stage, shapes):
    paired = engine.PairedModel(stage.model)
    stage.play(stage.build_engine(model=paired))
    assert len(shapes) == 2 * paired.calls
    assert shapes[::2] == shapes[1::2]
    assert all(seconds > 0 for two in paired.seconds.values() for seconds in two)


def test_a_forward_from_nothing_gives_the_same_on_the_plain_cache(engine, stage):
    import torch
    from transformers import DynamicCache

    cache = sys.modules["plain_cache"].PlainCache(stage.model)
    ids = torch.tensor([[5, 6, 7]])
    given = {"input_ids": ids + 20, "attention_mask": torch.ones(1, 1, 3, 3).tril().bool()}
    given["position_ids"] = torch.arange(3).expand(3, 1, 3)
    cache.prepare(1, 3, 3)
    with torch.no_grad():
        found, expected = (
            stage.model(**given, past_key_values=one, use_cache=True).logits for one in (cache, DynamicCache())
        )
    assert (found - expected).abs().max() < 1e-5


def test_twice_the_episodes_have_prompts_of_their_own_and_the_same_pictures(engine):
    once, twice = (engine.LooksEnv(engine.CaseSize(n, 2, 2, 2, pictures=2)) for n in (2, 4))
    systems = [twice.system_prompt(task) for task in twice.tasks]
    assert len(set(systems)) == 4
    seen = [[env.images(task)[0].tobytes() for task in env.tasks] for env in (once, twice)]
    assert seen[1] == seen[0] * 2


def test_trl_and_the_engine_play_the_same_completions(engine):
    found = engine.compare_with_trl(engine.CaseSize(1, 2, 2, 2), 1)  # asserts that they are equal
    assert found["tokens"] > 0
    assert abs(found["prompt_tokens"]["engine"] - found["prompt_tokens"]["trl"]) < 20


@pytest.mark.parametrize("given", ["floors", "a,bb"])
def test_a_section_that_does_not_exist_is_named_with_those_that_do(engine, capsys, given):
    with pytest.raises(SystemExit):
        engine.main(["1", "--only", given])
    assert f"--only: {given.split(',')[-1]}; allowed: a, b, split, floor, linear, trl" in capsys.readouterr().err


def test_a_section_gives_its_bar_and_the_last_line_is_json_of_all_that_were_chosen(engine, capsys):
    engine.main(["1", "--small", "--only", "linear,floor"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(found) == ["linear", "floor"]
    assert all({"bar", "met"} <= set(section) for section in found.values())


def test_a_short_soak_plays_as_many_episodes_as_it_is_asked_for_and_leaves_nothing_behind():
    import asyncio

    soak = load("soak")
    soak.ROUND = 20  # of its four rounds the reader stops one, and one has little time
    found = asyncio.run(soak.play_soak(60))
    assert found["episodes"] == 60
    assert found["ends"]["readers stopped early"] == 1
    assert not any(found["left"].values())


@pytest.fixture(scope="module")
def gpu_check(tmp_path_factory):
    """(exit code, figures, lines) of a short run of `gpu_check.py` on the shipped model, as a user starts it."""
    short = (
        "--device",
        "cpu",
        "--model",
        "package:tiny_viewer",
        "--dtype",
        "float32",
        "--episodes",
        "4",
        "--slots",
        "3",
    )
    small = ("--turns", "2", "--reply-tokens", "6", "--repeats", "1")
    folder = tmp_path_factory.mktemp("gpu_check")
    status, said = forks.start_script(FOLDER / "gpu_check.py", *short, *small, folder=folder).wait(300)
    lines = said.splitlines()
    return status, json.loads(lines[-1]), lines


def test_the_gpu_check_runs_without_a_gpu_and_ends_with_status_0_where_no_bar_is_missed(gpu_check):
    status, _, lines = gpu_check
    missed = [line for line in lines if line.startswith("MISS") and "times the per-turn loop" not in line]
    assert missed == []
    assert status == int(any(line.startswith("MISS") for line in lines))


def test_the_gpu_check_compares_with_plain_forwards_with_generate_and_with_the_per_turn_loop(gpu_check):
    _, figures, _ = gpu_check
    assert figures["greedy equals generate"]["share"] == 1.0
    assert 0 < figures["parity, T = 1.0"]["engine"]["max"] < 1e-4
    assert {"speed, engine", "speed, per turn", "speed, vLLM"} <= set(figures)


def test_a_bar_that_is_missed_is_told_and_counted(capsys):
    report = load("gpu_check").Report()
    report.add("fine", 1.0, True)
    report.add("no bar", 2.0)
    report.add("bad", {"mean": 0.5}, False, "at most 0.1")
    assert report.missed == ["bad"]
    assert capsys.readouterr().out.splitlines()[-1] == "MISS  bad: mean 0.5   (bar: at most 0.1)"


def test_the_share_of_time_in_forwards_is_a_share(gpu_check):
    _, figures, _ = gpu_check
    assert 0.1 < figures["share of the engine's time in forwards"] < 1


def test_a_traced_episode_runs_through_the_loop_and_no_file_outside_the_package():
    calls = load("trace_episode").count_calls()
    files = {path for path, _ in calls}
    assert {"core/base.py", "core/loop.py", "core/parsing/reply.py", "rewards/combined.py"} <= files
    assert all((FOLDER.parent / path).is_file() for path in files)


def test_the_page_is_timed_in_a_browser_until_its_rows_have_changed(tmp_path, monkeypatch):
    """The acts are real ones: the rows differ after each, so no time is that of waiting in vain (10 seconds)."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs a browser: pip install playwright")
    timed = load("view")
    if not Path(timed.CHROMIUM).exists():
        pytest.skip("needs a browser: apt-get install chromium")
    monkeypatch.setattr(timed, "ROUNDS", 1)
    timed.write(tmp_path / "run", 120)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=timed.CHROMIUM, args=timed.OPTIONS)
        found = timed.measure_file(browser.new_page(), tmp_path / "run")
        browser.close()
    assert found["episodes"] == 120
    assert all(0 < found[name] < 10_000 for name in ("load", "page", "filter", "search", "sort"))


def test_the_adviser_s_search_finds_more_than_bm25_alone(monkeypatch, capsys):
    search = load("adviser_retrieval")
    arguments = ["adviser_retrieval.py", "--requests", "80", "--tools", "400", "--searches", "20"]
    monkeypatch.setattr(sys, "argv", arguments)
    search.main()
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["recall"]["fused_and_reranked"]["recall"] >= 0.85  # no time: the same on every machine
    assert figures["recall"]["fused_and_reranked"]["recall"] > figures["recall"]["bm25"]["recall"]
    assert figures["searches_per_second"] > 0
