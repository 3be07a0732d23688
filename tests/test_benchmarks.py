"""The benchmarks' own pieces: what would rot unseen, since `benchmarks/bars.py` does not run it."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support import forks
from tests.support.replies import list_results, play
from tests.support.tables import each
from viewbox import tools
from viewbox.configs import schema
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
HACKING, BARS = load("reward_hacking"), load("bars")


def test_every_benchmark_with_a_bar_is_run_or_left_out_with_a_reason():
    with_bar = {path.stem for path in FOLDER.glob("*.py") if re.search(r"\bBARS?\b|\bbars?\b", path.read_text("utf-8"))}
    assert with_bar - BARS.SHORT.keys() - BARS.LEFT_OUT.keys() == {"bars"}
    assert not BARS.SHORT.keys() & BARS.LEFT_OUT.keys()
    assert all((FOLDER / f"{name}.py").exists() for name in (*BARS.SHORT, *BARS.LEFT_OUT))


@each("figures, missed", [
    ({"met": True, "share": 0.0, "passed": None}, []), ({"met": False}, ["met"]),
    ({"rows": [{"memory_met": False}, {"passes": True}]}, ["rows.0.memory_met"]),
    ({"missed": ["flops"], "below_bar": []}, ["missed"]),
])  # fmt: skip
def test_a_missed_bar_is_found_at_any_depth(figures, missed):
    assert list(BARS.find_missed(figures)) == missed


@pytest.mark.parametrize(
    ("script", "missed"), [("print('{\"met\": false}')", "a: met"), ("raise SystemExit(3)", "a: exit status 3")]
)
def test_a_benchmark_that_misses_its_bar_fails_the_command(tmp_path, monkeypatch, capsys, script, missed):
    (tmp_path / "a.py").write_text(script)
    monkeypatch.setattr(BARS, "FOLDER", tmp_path)
    monkeypatch.setattr(BARS, "SHORT", {"a": ""})
    monkeypatch.setattr(sys, "argv", ["bars.py"])
    assert BARS.main() == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"benchmarks": 1, "missed": [missed]}


def test_every_registered_tool_is_timed_with_arguments_that_are_accepted_or_known_to_have_no_counterpart():
    assert set(tools.TOOLS) <= {row.tool for row in TIMED.ROWS} | TIMED.ONLY_OURS
    for row in TIMED.ROWS:
        view = View.of(TIMED.make_image(64))
        for name, arguments in filter(None, (row.before, (row.tool, row.arguments))):
            view, result = tools.call_stateful(name, view, arguments)
            assert result.error is None, row.name


@pytest.mark.filterwarnings("ignore")
def test_every_installed_adapter_is_timed_on_episodes_that_are_answered_right(capsys):
    pytest.importorskip("verifiers")
    rows = load("adapters").measure(3, 1)
    assert {"driver", "gymnasium", "trl", "verifiers", "inspect_ai"} <= set(rows)
    assert all(row["median_ms"] > 0 for name, row in rows.items() if name != "inspect_ai")


def test_every_tool_that_changes_the_view_is_drawn_in_chains_and_a_chain_of_a_seed_plays_on_a_small_image():
    view = View.of(VIEWS.make_image(64))
    reading = {row.tool for row in TIMED.ROWS} - set(VIEWS.DRAWS)
    for row in (row for row in TIMED.ROWS if row.tool in reading):
        tool = tools.get_tool(row.tool)
        assert tool.function(view, **tool.check_arguments(row.arguments, "unit", view.size)).view is None
    view = View.of(VIEWS.make_image(128), max_pixels=32 * 32)
    steps = VIEWS.draw_chain(view, 0, length=10)
    assert steps == VIEWS.draw_chain(view, 0, length=10)
    assert len(VIEWS.time_calls(view, steps)) == len(steps) == 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_the_memory_of_a_chain_is_measured_in_a_process_of_its_own(tmp_path):
    np.save(tmp_path / "image.npy", VIEWS.make_image(128))
    steps = VIEWS.draw_chain(View.of(VIEWS.make_image(128), max_pixels=32 * 32), 0, length=3)
    assert 0 <= VIEWS.measure_peak_in_process(tmp_path / "image.npy", steps) < 1000


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


@each("how", ["rss", "tracemalloc"])
def test_what_episodes_in_flight_hold_is_measured_while_all_of_them_are(how):
    found = STEP.measure_held(how, episodes=12, images=4)
    assert found["pictures"] == 8  # each image, and the one view that all look at
    assert found["pixels"] == 8 * STEP.SIDE**2


def test_the_two_runs_of_reward_hacking_differ_in_the_gate_only():
    from viewbox.configs import schema
    from viewbox.training.findings import check
    from viewbox.training.plan import Plan

    found = {}
    for name in HACKING.RUNS:
        loaded = schema.load(str(FOLDER / "reward_hacking.yaml"), HACKING.build_overrides(name))
        check(Plan(loaded))
        found[name] = loaded.model_dump()
    assert found["gated"]["reward"]["components"]["bonus"].pop("needs") == {"label": 1.0}
    assert found["gated"] == found["naive"]


# ---------------------------------------------------------------------- the rollout engine's
@pytest.fixture(scope="module")
def engine():
    """`rollouts.py`, with its neighbors as attributes."""
    return load("rollouts")


def test_every_engine_with_something_left_out_and_trl_play_the_same_episodes(engine):
    stage = engine.Stage(engine.CaseSize(2, 2, 3, 2))

    def play_stage(*parts):
        return [episode.tokens.completion_ids for episode in stage.play_episodes(*parts)]

    whole = play_stage(stage.build_engine())
    assert len(set(whole)) == len(whole) == 4
    for variant in engine.VARIANTS.values():
        assert play_stage(variant.build_engine(stage), variant.build_env(stage)) == whole
    found = engine.compare_with_trl(engine.CaseSize(1, 2, 2, 2), 1)  # asserts that they are equal
    assert found["tokens"] > 0
    assert abs(found["prompt_tokens"]["engine"] - found["prompt_tokens"]["trl"]) < 20


def test_a_section_gives_its_bar_the_last_line_is_json_of_all_that_were_chosen_and_a_family_plays_the_case(
    engine, capsys
):
    engine.main(["1", "--small", "--only", "linear,floor"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(found) == ["linear", "floor"]
    assert all({"bar", "met"} <= set(section) for section in found.values())
    engine.main(["1", "--small", "--family", "gemma3"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["gemma3"]["tokens"] > 0


def test_the_gpu_check_runs_without_a_gpu_and_ends_with_status_0_where_no_bar_is_missed(tmp_path):
    short = "--device cpu --model package:tiny_viewer --dtype float32 --episodes 4 --slots 3"
    small = "--turns 2 --reply-tokens 6 --repeats 1"
    script = forks.start_script(FOLDER / "gpu_check.py", *short.split(), *small.split(), folder=tmp_path)
    status, said = script.wait(300)
    lines = said.splitlines()
    figures = json.loads(lines[-1])
    assert figures["greedy equals generate"]["share"] == 1.0
    assert 0 < figures["parity, T = 1.0"]["engine"]["max"] < 1e-4
    assert 0.1 < figures["share of the engine's time in forwards"] < 1
    missed = [line for line in lines if line.startswith("MISS") and "times the per-turn loop" not in line]
    assert missed == []
    assert status == int(any(line.startswith("MISS") for line in lines))


def test_the_check_of_families_runs_without_a_gpu(tmp_path):
    small = ("--wider", "1", "--episodes", "2", "--turns", "2", "--reply-tokens", "3", "--repeats", "1")
    script = forks.start_script(FOLDER / "gpu_families.py", "--only", "qwen3_vl,gemma4", *small, folder=tmp_path)
    status, said = script.wait(300)
    found = json.loads(said.splitlines()[-1])["families"]
    assert list(found) == [f"{name} {dtype}" for dtype in ("float32", "bfloat16") for name in ("qwen3_vl", "gemma4")]
    assert [one["missed"] for one in found.values()] == [[]] * 4
    assert all(one["mean error of log-probs"]["plain"] < 1e-4 for key, one in found.items() if "float32" in key)
    assert status == 0


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


def test_an_invented_request_of_the_adviser_is_answered_by_its_facts_and_names_no_software():
    warm, settings = load("adviser_warmstart"), schema.load("software_adviser_warmstart").env.settings
    env = warm.InventedRequests(**settings)
    for number, task in enumerate(env.tasks[:20]):
        request, replies = env.get_request(task), env.demonstration(task, number)
        episode = play(env, task, *replies)
        (result,) = list_results(episode)
        assert (episode.end_reason, len(replies)) == ("answered", 2 + bool(request.hidden))
        assert not set(result.facts["names"]).intersection(env.software)
        facts = (request.task, request.modality, request.structure, request.format)
        assert all(fact in text for fact in facts for text in replies[-2:])
        assert [fact in request.words for fact in facts[:3]] == [True, False, False]
