"""Weights & Biases beside metrics.jsonl: the real client, offline."""

import os
from types import SimpleNamespace

import pytest
import wandb

from viewbox.configs.sections import LogSection
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import ConfigError
from viewbox.training.reporting import tracking


@pytest.fixture
def surroundings(monkeypatch, tmp_path):
    """No W&B settings of whoever runs the tests, and none left behind."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    before = dict(os.environ)
    yield monkeypatch
    for name in set(os.environ) - set(before):
        del os.environ[name]


def prepared(folder, **log):
    told = []
    tracking.prepare_wandb(LogSection(report_to=["wandb"], **log), folder, told.append)
    return told


def test_without_a_key_the_run_is_kept_offline_and_says_how_to_send_it_and_what_the_user_has_set_stays(
    surroundings, tmp_path
):
    tracking.prepare_wandb(LogSection(), tmp_path, pytest.fail)  # nobody asked
    assert not [name for name in os.environ if name.startswith("WANDB_")]
    assert not list(tmp_path.iterdir())
    (told,) = prepared(tmp_path)
    assert os.environ["WANDB_MODE"] == "offline"
    assert f"wandb sync {tmp_path}" in told
    first = os.environ.pop("WANDB_RUN_ID")
    prepared(tmp_path)  # a resumed run is the same run there
    assert (os.environ["WANDB_RUN_ID"], os.environ["WANDB_RESUME"]) == (first, "allow")
    surroundings.setenv("WANDB_MODE", "disabled")
    surroundings.setenv("WANDB_PROJECT", "mine")
    assert prepared(tmp_path) == []
    assert (os.environ["WANDB_MODE"], os.environ["WANDB_PROJECT"]) == ("disabled", "mine")


@pytest.mark.parametrize("where", ["environment", "netrc"])
def test_with_a_key_it_goes_online(surroundings, tmp_path, where):
    if where == "environment":
        surroundings.setenv("WANDB_API_KEY", "k" * 40)
    else:
        (tmp_path / "netrc").write_text(f"machine api.wandb.ai login user password {'k' * 40}\n")
    assert prepared(tmp_path) == []
    assert "WANDB_MODE" not in os.environ


class Ward(Digits):
    restricted = True


def test_pictures_of_a_restricted_environment_stay_and_others_need_a_tracker_that_takes_them():
    with pytest.raises(ConfigError, match=r"restricted to this machine.*W&B"):
        tracking.check_images(LogSection(report_to=["wandb"], send_images=True), Ward())
    with pytest.raises(ConfigError, match=r"log\.report_to"):
        tracking.check_images(LogSection(send_images=True), Digits())


def test_a_table_shows_the_turns_of_episodes_with_their_pictures_and_boxes(surroundings, tmp_path, monkeypatch):
    env = Digits()
    said = [viewer.write_gold_look(env, env.tasks[0]), viewer.write_answer(env, env.tasks[0])]
    replies = iter(said)
    episode = env.play(env.tasks[0], lambda messages: next(replies))
    prepared(tmp_path)
    run = wandb.init(mode="offline", dir=str(tmp_path))
    logged = []
    monkeypatch.setattr(wandb, "log", lambda data, commit=True: logged.append(data))
    table = tracking.EpisodeTable(lambda: [episode])
    for step in (1, 10):
        table.on_log(None, SimpleNamespace(global_step=step), None, logs={"reward": 0.5})
    run.finish()
    (shown,) = [one["episodes"] for one in logged]
    assert {tuple(row[:4]) for row in shown.data} == {(10, env.tasks[0].id, episode.scores.total, "answered")}
    assert [row[5:7] for row in shown.data] == [[0, "user"], [1, "assistant"], [2, "tool_result"], [3, "assistant"]]
    assert [row[7] for row in shown.data if row[6] == "assistant"] == said
    pictures = [row[8] for row in shown.data]
    assert [one and one.image.size for one in pictures] == [(48, 48), None, (48, 48), None]
    overlays = {kind: one._val for kind, one in pictures[0]._boxes.items()}
    assert set(overlays) == {"gold", "answer", "tool"}
    assert overlays["tool"][0]["box_caption"] == "zoom"
    position = overlays["gold"][0]["position"]
    corners = [position[name] for name in ("minX", "minY", "maxX", "maxY")]
    assert corners == pytest.approx(env.tasks[0].reference["bbox"], abs=1e-5)


def test_held_out_figures_stand_in_the_summary_of_the_run_with_their_intervals(surroundings, tmp_path):
    prepared(tmp_path)
    with wandb.init(mode="offline") as run:
        figures = {"reward": 0.5, "metrics/label/accuracy": 0.25, "intervals": {"reward": [0.4, 0.6]}}
        tracking.send_held_out({"before": figures, "after": figures})
        found = run.summary
        assert found["eval/before/reward"] == 0.5
        assert found["eval/after/metrics/label/accuracy"] == 0.25
        assert (found["eval/after/reward/low"], found["eval/after/reward/high"]) == (0.4, 0.6)
    tracking.send_held_out({"after": figures})  # nowhere: the run has ended
    assert wandb.run is None
