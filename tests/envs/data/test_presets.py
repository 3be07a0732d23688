"""The configs of known datasets, on small copies with the features of the hub: they fit, open, and score."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from examples.snapshot import SnapshotWriter
from tests.support import datasets
from tests.support.replies import call, list_results, play
from viewbox.cli.app import app
from viewbox.cli.data import open_data_envs
from viewbox.configs import schema
from viewbox.envs.data.check import compare_columns
from viewbox.errors import ConfigError
from viewbox.tools.search.records import Article
from viewbox.training.findings import check
from viewbox.training.plan import Plan

PAGES = Path(__file__).resolve().parents[3] / "docs" / "datasets"
CONSTANT = {
    "vqa_rad": {"answer": "yes"}, "slake": {"answer": "yes"}, "pubmedqa": {"answer": "yes"}, "vstar": {"answer": "A"},
    "gemex_thinkvg": {"answer": "No", "location": "bilateral lungs", "boxes": [[0, 0, 1000, 1000]]},
    "nova": {"report": "normal", "diagnosis": ["normal"], "boxes": []}, "chartqa": {"answer": "Yes"},
    "pubmedqa_search": {"answer": "yes", "evidence": []}, "agentclinic_nejm": {"answer": "Exogenous ochronosis"},
    "chestagentbench": {"answer": "B"}, "rexvqa": {"answer": "C"},
}  # fmt: skip
# boxes: parts of 336 for the first, and the model writes them from 0 to 1000
ROUNDED = {"gemex_thinkvg": 0.002, "nova": 0.001}


@pytest.fixture(scope="module")
def open_preset(tmp_path_factory):
    """Opens the training or held-out environment of a preset on its small copy."""
    copies = {}

    def run(name, *overrides, held_out=False):
        if name not in copies:
            copies[name] = datasets.build(name, tmp_path_factory.mktemp(name))
        path = str(copies[name])
        if name == "gemex_thinkvg":
            overrides = (*overrides, f"env.data.images={path}/images")
        if name == "pubmedqa_search":  # no test asks the network
            snapshot = copies[name] / "articles.sqlite"
            if not snapshot.exists():
                write_articles(snapshot, copies[name])
            overrides = (f"env.specialists.search={{kind: literature, snapshot: '{snapshot}'}}", *overrides)
        return open_data_envs(name, overrides, path)[int(held_out)]

    return run


def write_articles(path, folder):
    """Write a snapshot of the articles that the questions of a copy of PubMedQA are taken from."""
    rows = [row for file in folder.rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    with SnapshotWriter(path, note="a test", license="none") as writer:
        for row in rows:
            writer.add_article(Article(str(row["pubid"]), row["question"], "J", 2020, row["long_answer"]))


def read_page(name):
    return re.sub(r"\s+", " ", (PAGES / f"{name}.md").read_text())


def play_all(env, answer=None):
    """The mean reward of right answers, or of always the same one."""
    scores = []
    for task in env.tasks:
        replies = [env.write_answer(task) if answer is None else json.dumps(answer)]
        if getattr(env, "evidence", False):
            replies.insert(0, call("search_web", query=task.prompt["question"]))
        scores.append(play(env, task, *replies).scores.total)
    return sum(scores) / len(scores)


def test_every_preset_has_a_config_a_copy_and_a_page_with_every_expected_column():
    shipped = {path.stem for path in Path(schema.__file__).with_name("datasets").glob("*.yaml")}
    assert shipped == set(datasets.BUILDERS) == {path.stem for path in PAGES.glob("*.md")} - {"README"}
    index = (PAGES / "README.md").read_text()
    for name in shipped:
        page = read_page(name)
        assert f"[`{name}`]({name}.md)" in index
        assert f"viewbox data check {name} --path" in page
        assert schema.find(name).read_bytes() == schema.find(f"configs/datasets/{name}.yaml").read_bytes()
        for path in schema.load(name).env.settings["data"]["features"]:
            assert re.search(rf"\b{re.escape(path.split('.*')[0])}\b", page), (name, path)


FRAME = "Boxes in your answer refer to the whole image as it was shown first, even after a tool has changed the view."


@pytest.mark.parametrize("name", CONSTANT)
def test_a_preset_fits_the_hub_pays_right_answers_and_a_constant_one_as_its_page_says(open_preset, name):
    env = open_preset(name)
    report = compare_columns(env)
    assert report.fits
    assert "extra" not in dict(report.findings)
    text = env.build_system_prompt(env.tasks[0])  # with boxes it says once which picture they refer to
    assert text.count("Boxes in your answer") == text.count(FRAME) == (name in ROUNDED)
    for held_out in (False, True):
        env = open_preset(name, held_out=held_out)
        assert len(env.tasks) > 0
        assert env.tasks.skipped == {}
        assert play_all(env) == pytest.approx(1.0, abs=ROUNDED.get(name, 1e-9))
    (said,) = re.findall(r"scores (\d\.\d\d) on the small copy", read_page(name))
    whole = ("env.data.hold_out=null",) if open_preset(name).data.hold_out else ()
    whole += ("env.data.split=test",) if name == "vstar" else ()  # its folder holds test_questions.jsonl alone
    assert play_all(open_preset(name, *whole), CONSTANT[name]) == pytest.approx(float(said), abs=0.005)


def test_gemex_and_rexvqa_must_not_leave_this_machine(open_preset):
    assert open_preset("rexvqa").restricted
    assert all(open_preset("gemex_thinkvg", held_out=held_out).restricted for held_out in (False, True))
    source = open_preset("gemex_thinkvg").data.source
    arguments = ["rollout", "--config", "gemex_thinkvg", "--endpoint", "https://api.example.org/v1", "--model", "m"]
    result = CliRunner().invoke(app, [*arguments, f"env.data.source={source}"])
    assert "restricted to this machine" in str(result.exception)

    for name, setting in (
        ("gemex_thinkvg", "restricted=false"),
        ("rexvqa", "restricted=false"),
        ("nova", "evaluation_only=null"),
        ("chestagentbench", "evaluation_only=null"),
    ):
        with pytest.raises(ConfigError, match=setting.partition("=")[0]):
            schema.load(name, [f"env.data.{setting}"])


def test_training_on_a_benchmark_or_on_pubmedqa_with_live_search_is_refused_with_the_reason(open_preset):
    benchmark = "ChestAgentBench is a benchmark without a training"
    for name, reason in (("nova", r"NOVA is licensed CC BY-NC-SA 4\.0"), ("chestagentbench", benchmark)):
        for overrides in ([], [f"env.data.source={open_preset(name).data.source}"]):
            with pytest.raises(ConfigError, match=f"may not be trained on: {reason}"):
                check(Plan(schema.load(name, overrides)))
    live = ("env.specialists.search={kind: literature}",)
    with pytest.raises(ConfigError, match=r"specialists\.search: live search"):
        open_preset("pubmedqa_search", *live).check_may_train()
    open_preset("pubmedqa_search").check_may_train()
    search = {"kind": "literature", "max_calls": 4}
    assert schema.load("pubmedqa_search").env.settings["specialists"] == {"search": search}


def test_boxes_of_nova_are_those_of_its_file(open_preset):
    env = open_preset("nova")
    for task, row in zip(env.tasks, pq.read_table(env.data.source).to_pylist(), strict=True):
        gold = [box for box in row["bboxes"] if box["source"] == "gold"]
        ends = [[box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]] for box in gold]
        assert np.allclose(task.reference["boxes"], np.divide(ends, 480))


def play_calls(env, *calls):
    """The episode of the first task with these calls and the right answer, and the results of the calls."""
    episode = play(env, env.tasks[0], *calls, env.write_answer(env.tasks[0]))
    return episode, list_results(episode)


def test_a_patient_and_examinations_answer_in_agentclinic(open_preset):
    env = open_preset("agentclinic_nejm")
    asked = env.user_message(env.tasks[0])
    assert ("What is the most likely diagnosis?" in asked, "darkening" in asked) == (True, False)
    calls = call("ask_patient", question="For how long has your skin darkened?"), call("order_exam", name="skin biopsy")
    episode, (told, seen) = play_calls(env, *calls)
    assert ("darkened for a year" in told.text, "banana-shaped bodies" in seen.text) == (True, True)
    assert episode.scores.total == 1.0


def test_pubmedqa_with_a_search_hides_the_abstract_and_answers_from_a_snapshot(open_preset):
    figures = "env.specialists.search={kind: literature, snapshot: 'package:literature'}"
    shown, env = open_preset("pubmedqa"), open_preset("pubmedqa_search", figures)
    assert "imaged in vivo" in shown.user_message(shown.tasks[0])
    assert "imaged in vivo" not in env.user_message(env.tasks[0])
    assert "Do mitochondria play a role" in env.user_message(env.tasks[0])
    calls = [call(name, query="Kliltolm syndrome") for name in ("search_web", "search_images")]
    episode, (web, images) = play_calls(env, *calls)
    assert "Kliltolm" in web.text
    assert images.image is not None
    assert "open_image" not in images.text  # a task without an image has no viewer
    assert episode.scores.components == {"answer": 1.0, "evidence": 0.0}  # no search found what it cites
