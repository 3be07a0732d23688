"""What a run leaves on disk."""

import json
import re
from importlib import metadata
from types import SimpleNamespace

import yaml
from PIL import Image

from tests.support.tables import each
from viewbox.rollouts.store import run_folder
from viewbox.training.reporting import callbacks, report

STEP = {"reward": 0.5, "tools/rate": 0.25, "episodes/truncated": 0.0, "rewards/label/mean": 0.4, "end/answered": 1.0}


def log(folder, *logs, every=1, main=True):
    """A metrics file whose trainer has logged what is given, one line a step, and the lines that were told."""
    told, path = [], folder / "metrics.jsonl"
    screen = SimpleNamespace(print_line=told.append, show_status=lambda line: None, close=lambda: None)
    callback = callbacks.MetricsFile(path, screen, every)
    state = SimpleNamespace(global_step=0, max_steps=len(logs), is_world_process_zero=main)
    callback.on_train_begin(None, state, None)
    for one in logs:
        state.global_step += 1
        callback.on_log(None, state, None, logs=one)
    return path, told


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


def test_every_log_is_a_line_of_the_metrics_file_with_its_step(tmp_path):
    logs = [{"loss": 0.5}, {"loss": 0.25, "reward": None}, {"train_runtime": 3.0}]
    path, _ = log(tmp_path, *logs)
    assert list(run_folder.read_metrics(path)) == [{"step": number, **one} for number, one in enumerate(logs, 1)]


def test_every_nth_step_is_told_in_one_line_also_without_a_reward_and_by_one_process(tmp_path):
    path, told = log(tmp_path, STEP, main=False)
    assert (path.exists(), told) == (False, [])
    _, told = log(tmp_path, STEP, {"loss": 0.125})
    assert told[0].startswith("step 1/2  reward 0.50  tool rate 0.25  truncated 0.00  0:0")
    assert re.fullmatch(r"about \S+ s a step: 0:00 for the other 1", told[1])
    assert told[2].startswith("step 2/2  loss 0.125  0:0")
    assert log(tmp_path, {**STEP, "reward": None})[1][0].startswith("step 1/1  tool rate 0.25")
    path, told = log(tmp_path, *[STEP] * 10, every=5)
    assert [line.split("  ")[0] for line in told if line.startswith("step")] == ["step 5/10", "step 10/10"]
    assert len(list(run_folder.read_metrics(path))) == 2 + 1 + 10


HELD_OUT = {name: {"reward": value} for name, value in (("before", 0.1), ("after", 0.6), ("oracle", 0.9))}


MIXED = [STEP, {**STEP, "reward": None}, {"loss": 1.0}, STEP]


@each("lines, summary, colors", [
    *((lines, summary, 10) for lines in ([STEP], MIXED) for summary in ({}, {"held_out": {}}, {"held_out": HELD_OUT})),
    ([{"loss": 2.0}, {"loss": 1.0}], {}, 2),  # of a supervised run
    ([{"train_runtime": 0.5}], {}, 0),  # without a single step there is none
])  # fmt: skip
def test_the_curve_is_a_picture_with_something_on_it(tmp_path, lines, summary, colors):
    report.draw_curve(tmp_path, [{"step": i + 1, **line} for i, line in enumerate(lines)], summary)
    assert (tmp_path / "curve.png").exists() == bool(colors)
    if colors:
        with Image.open(tmp_path / "curve.png") as picture:
            assert (picture.format, picture.width > 80 * colors) == ("PNG", True)
            assert len(picture.convert("RGB").getcolors(2**24)) > colors


CALLS = {"tools/ask/calls": 2.5, "tools/calls": 2.5, "tools/zoom/calls": 0.0, "tools/ask/success": 1.0}


def test_the_curve_and_the_table_show_the_calls_of_each_tool_and_legends_hide_no_curve(tmp_path, monkeypatch, capsys):
    figures = []
    monkeypatch.setattr("matplotlib.pyplot.close", figures.append)
    report.draw_curve(tmp_path, [{"step": 1, **STEP}, {"step": 2, **STEP}], {"held_out": HELD_OUT})
    report.draw_curve(tmp_path, [{"step": 1, **STEP, **CALLS}, {"step": 2, **STEP, **CALLS}], {})
    for axis in figures[0].axes:
        assert axis.get_legend().get_window_extent().y1 < axis.get_window_extent().y0
    axis = figures[1].axes[1]
    labels = [line.get_label() for line in axis.get_lines()]
    assert [label for label in labels if label.startswith("calls")] == ["calls of ask an episode"]
    assert axis.get_ylim()[1] > 2.5
    held_out = {"before": {"reward": 0.25, "tools/ask/calls": 0.0}, "after": {"reward": 0.5, **CALLS}}
    report.print_table({"name": "run", "held_out": held_out, "seconds": {"training": 7.0}}, tmp_path)
    printed = capsys.readouterr().out
    assert re.search(r"calls of ask\W+0\.000\W+2\.500", printed)
    assert "zoom" not in printed
    assert "reward +0.250; training took 7 s" in printed
