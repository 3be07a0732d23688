"""What a run leaves on disk."""

import json
import re
from importlib import metadata
from types import SimpleNamespace

import pytest
import yaml
from PIL import Image

from tests.support.tables import each
from viewbox.rollouts.store import run_folder
from viewbox.training.reporting import callbacks, report

STEP = {"reward": 0.5, "tools/rate": 0.25, "episodes/truncated": 0.0, "rewards/label/mean": 0.4, "end/answered": 1.0}


@pytest.fixture
def told():
    return []


@pytest.fixture
def metrics(tmp_path, told):
    """A metrics file whose trainer has logged what is given, one line a step."""

    def run(*logs, every=1, main=True):
        screen = SimpleNamespace(print_line=told.append, show_status=lambda line: None, close=lambda: None)
        callback = callbacks.MetricsFile(tmp_path / "metrics.jsonl", screen, every)
        state = SimpleNamespace(global_step=0, max_steps=len(logs), is_world_process_zero=main)
        callback.on_train_begin(None, state, None)
        for one in logs:
            state.global_step += 1
            callback.on_log(None, state, None, logs=one)
        return tmp_path / "metrics.jsonl"

    return run


def test_a_run_never_writes_into_the_folder_of_an_earlier_one(tmp_path):
    folders = [run_folder.create_folder(tmp_path / "runs", "name") for _ in range(3)]
    assert [folder.name for folder in folders] == ["name", "name-2", "name-3"]
    assert all(folder.is_dir() for folder in folders)


def test_the_config_can_be_read_back_and_the_versions_are_those_installed(tmp_path):
    config = {"model": {"name": "m"}, "env": {"name": "digits", "tools": ["zoom"]}, "train": {"learning_rate": 1e-4}}
    run_folder.write_config(tmp_path, config)
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == config
    versions = json.loads((tmp_path / "versions.json").read_text())
    assert {"python", "viewbox", "torch", "transformers", "trl"} <= set(versions)
    assert versions["trl"] == metadata.version("trl")


def test_every_log_is_a_line_of_the_metrics_file_with_its_step(metrics):
    logs = [{"loss": 0.5}, {"loss": 0.25, "reward": None}, {"train_runtime": 3.0}]
    path = metrics(*logs)
    assert list(run_folder.read_metrics(path)) == [{"step": number, **one} for number, one in enumerate(logs, 1)]


def test_every_nth_step_is_told_in_one_line_also_without_a_reward_and_by_one_process(metrics, told):
    assert not metrics(STEP, main=False).exists()
    assert told == []
    metrics(STEP, {"loss": 0.125})
    assert told[0].startswith("step 1/2  reward 0.50  tool rate 0.25  truncated 0.00  0:0")
    assert re.fullmatch(r"about \S+ s a step: 0:00 for the other 1", told[1])
    assert told[2].startswith("step 2/2  loss 0.125  0:0")
    told.clear()
    metrics({**STEP, "reward": None})
    assert told[0].startswith("step 1/1  tool rate 0.25")
    told.clear()
    path = metrics(*[STEP] * 10, every=5)
    assert [line.split("  ")[0] for line in told if line.startswith("step")] == ["step 5/10", "step 10/10"]
    assert len(list(run_folder.read_metrics(path))) == 2 + 1 + 10


HELD_OUT = {name: {"reward": value} for name, value in (("before", 0.1), ("after", 0.6), ("oracle", 0.9))}


@each("summary", [{}, {"held_out": {}}, {"held_out": HELD_OUT}])
@each("lines", [[STEP], [STEP, {**STEP, "reward": None}, {"loss": 1.0}, STEP]])
def test_the_curve_is_a_picture_with_something_on_it(tmp_path, summary, lines):
    report.draw_curve(tmp_path, [{"step": i + 1, **line} for i, line in enumerate(lines)], summary)
    with Image.open(tmp_path / "curve.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > 800
        assert len(picture.convert("RGB").getcolors(2**24)) > 10


def test_the_curve_of_a_supervised_run_is_its_loss_and_without_a_single_step_there_is_none(tmp_path):
    report.draw_curve(tmp_path, [{"step": 1, "train_runtime": 0.5}], {})
    assert not (tmp_path / "curve.png").exists()
    report.draw_curve(tmp_path, [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}], {})
    with Image.open(tmp_path / "curve.png") as picture:
        assert len(picture.convert("RGB").getcolors(2**24)) > 2


def test_the_legends_stand_below_the_curves_and_hide_none_of_them(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr("matplotlib.pyplot.close", figures.append)
    report.draw_curve(tmp_path, [{"step": 1, **STEP}, {"step": 2, **STEP}], {"held_out": HELD_OUT})
    (figure,) = figures
    for axis in figure.axes:
        assert axis.get_legend().get_window_extent().y1 < axis.get_window_extent().y0


def test_the_curve_and_the_table_show_the_calls_of_each_tool_that_was_called(tmp_path, monkeypatch, capsys):
    figures = []
    monkeypatch.setattr("matplotlib.pyplot.close", figures.append)
    calls = {"tools/ask/calls": 2.5, "tools/calls": 2.5, "tools/zoom/calls": 0.0, "tools/ask/success": 1.0}
    report.draw_curve(tmp_path, [{"step": 1, **STEP, **calls}, {"step": 2, **STEP, **calls}], {})
    axis = figures[0].axes[1]
    labels = [line.get_label() for line in axis.get_lines()]
    assert [label for label in labels if label.startswith("calls")] == ["calls of ask an episode"]
    assert axis.get_ylim()[1] > 2.5
    held_out = {"before": {"reward": 0.25, "tools/ask/calls": 0.0}, "after": {"reward": 0.5, **calls}}
    report.print_table({"name": "run", "held_out": held_out, "seconds": {"training": 7.0}}, tmp_path)
    printed = capsys.readouterr().out
    assert re.search(r"calls of ask\W+0\.000\W+2\.500", printed)
    assert "zoom" not in printed
    assert "reward +0.250; training took 7 s" in printed
