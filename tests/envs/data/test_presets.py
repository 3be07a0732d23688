"""The configs of known datasets, on small copies with the features of the hub: they fit, open, and score."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support import datasets
from viewbox.cli.app import app
from viewbox.cli.data_check import open_data_env
from viewbox.configs import schema
from viewbox.errors import ConfigError

PAGES = Path(__file__).resolve().parents[3] / "docs" / "datasets"
CONSTANT = {
    "vqa_rad": {"answer": "yes"},
    "slake": {"answer": "yes"},
    "gemex_thinkvg": {"answer": "No", "location": "bilateral lungs", "boxes": [[0, 0, 1000, 1000]]},
    "pubmedqa": {"answer": "yes"},
    "vstar": {"answer": "A"},
    "chartqa": {"answer": "Yes"},
}
NAMES = tuple(CONSTANT)
ROUNDED = {"gemex_thinkvg": 0.001}  # its boxes are parts of 336, and the model writes them from 0 to 1000


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
        return open_data_env(name, overrides, path, held_out=held_out)

    return run


def read_page(name):
    return re.sub(r"\s+", " ", (PAGES / f"{name}.md").read_text())


def play_all(env, answer=None):
    """The mean reward of right answers, or of always the same one."""
    scores = []
    for task in env.tasks:
        reply = env.write_answer(task) if answer is None else json.dumps(answer)
        scores.append(env.play(task, lambda messages, reply=reply: reply).scores.total)
    return sum(scores) / len(scores)


def test_every_preset_has_a_config_a_copy_and_a_page():
    shipped = {path.stem for path in Path(schema.__file__).with_name("datasets").glob("*.yaml")}
    assert shipped == set(datasets.NAMES) == {path.stem for path in PAGES.glob("*.md")} - {"README"}
    index = (PAGES / "README.md").read_text()
    for name in shipped:
        assert f"[`{name}`]({name}.md)" in index
        assert f"viewbox data check {name} --path" in read_page(name)
        assert schema.find(name).samefile(schema.find(f"configs/datasets/{name}.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_the_features_of_the_hub_are_those_that_the_config_expects(open_preset, name):
    report = open_preset(name).compare()
    assert report.fits
    assert report.extra == ()


@pytest.mark.parametrize("name", datasets.NAMES)
def test_every_expected_column_is_on_the_page(name):
    page = read_page(name)
    for path in schema.load(name).env.settings["data"]["features"]:
        assert re.search(rf"\b{re.escape(path.split('.*')[0])}\b", page), path


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_right_answers_score_1(open_preset, name, held_out):
    env = open_preset(name, held_out=held_out)
    assert len(env.tasks) > 0
    assert env.tasks.skipped == {}
    assert play_all(env) == pytest.approx(1.0, abs=ROUNDED.get(name, 1e-9))


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_answer_scores_what_the_page_says(open_preset, name):
    (said,) = re.findall(r"scores (\d\.\d\d) on the small copy", read_page(name))
    whole = ("env.data.hold_out=null",) if open_preset(name).data.hold_out else ()
    assert play_all(open_preset(name, *whole), CONSTANT[name]) == pytest.approx(float(said), abs=0.005)


def test_gemex_must_not_leave_this_machine(open_preset):
    assert open_preset("gemex_thinkvg").restricted
    assert open_preset("gemex_thinkvg", held_out=True).restricted
    source = open_preset("gemex_thinkvg").data.source
    arguments = ["rollout", "--config", "gemex_thinkvg", "--endpoint", "https://api.example.org/v1", "--model", "m"]
    result = CliRunner().invoke(app, [*arguments, f"env.data.source={source}"])
    assert "restricted to this machine" in str(result.exception)
    with pytest.raises(ConfigError, match="restricted"):
        schema.load("gemex_thinkvg", ["env.data.restricted=false"])
