"""What a person sees of a run, on a terminal and in a log file."""

import io
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from tests.support.tables import each
from viewbox.envs.digits import Digits
from viewbox.training.reporting import callbacks, report
from viewbox.training.reporting.report import draw_curve
from viewbox.training.run import Run


@pytest.fixture
def screen():
    """(a printer, what it wrote) for a terminal or a file."""

    def make(terminal):
        written = io.StringIO()
        return report.ProgressPrinter(Console(file=written, force_terminal=terminal, width=100)), written

    return make


def test_a_terminal_also_gets_a_line_that_changes_and_goes(screen):
    printer, written = screen(True)
    printer.show_status("3 of 8 episodes played")
    printer.show_status("4 of 8 episodes played")
    printer.print_line("step 1/2")
    printer.close()
    shown = written.getvalue()
    assert shown.index("3 of 8") < shown.index("4 of 8") < shown.index("step 1/2")
    assert "\x1b[2K" in shown  # lines are erased


def test_a_line_says_step_reward_tool_rate_speed_and_time_left(tmp_path, screen):
    printer, written = screen(False)
    printer.show_status("3 of 8 episodes played")  # for a terminal only, unless nothing else was said for a while
    printer.print_line("changed: env.tools: ['zoom'] → [bold]")
    metrics = callbacks.MetricsFile(tmp_path / "metrics.jsonl", printer)
    state = SimpleNamespace(global_step=0, max_steps=100, is_world_process_zero=True)
    metrics.on_train_begin(None, state, None)
    state.global_step = 50
    metrics.started -= 100.0
    logs = {"reward": 0.5, "tools/rate": 0.25, "episodes/truncated": 0.0, "time/episodes_per_second": 12.34}
    metrics.on_log(None, state, None, logs=logs)
    changed, step, *_ = written.getvalue().splitlines()
    assert changed == "changed: env.tools: ['zoom'] → [bold]"
    assert step == "step 50/100  reward 0.50  tool rate 0.25  truncated 0.00  12.3 episodes/s  1:40 left"


def test_a_log_file_is_told_what_is_done_where_it_would_be_silent_for_ten_seconds(screen):
    printer, written = screen(False)
    for seconds, said in ((5, ""), (9, "2 of 8\n"), (0, "2 of 8\n")):
        printer._said -= seconds
        printer.show_status("2 of 8")
        assert written.getvalue() == said


@each("seconds, text", [(0, "0:00"), (61, "1:01"), (3661, "1:01:01"), (90000, "1 d 1:00:00")])
def test_durations_are_written_as_people_read_them(seconds, text):
    assert callbacks.format_duration(seconds) == text


@each("scored", [(), ("before", "after"), ("before", "oracle")])
def test_held_out_figures_without_a_reward_are_shown_as_missing(tmp_path, capsys, scored):
    names = ("before", "after", "oracle", "oracle_after")
    held_out = {name: {"tools/rate": 0.5, **({"reward": 0.25} if name in scored else {})} for name in names}
    summary = {"name": "run", "held_out": held_out, "seconds": {"training": 1}}
    draw_curve(tmp_path, [{"step": 1, "reward": 0.5, "tools/rate": 0.5}], summary)
    report.print_table(summary, tmp_path)
    said = capsys.readouterr().out
    assert ("reward +0.000" in said) is ({"before", "after"} <= set(scored))
    assert (tmp_path / "curve.png").is_file()


@pytest.mark.parametrize("raised", [SystemExit(3), ValueError("no"), KeyboardInterrupt()])
def test_an_oracle_that_fails_costs_its_figures_and_ctrl_c_the_run(raised):
    class Guessing(Digits):
        def oracle(self, task):
            raise raised

    said = []
    run = SimpleNamespace(held_out=Guessing(), printer=SimpleNamespace(print_line=said.append))
    if isinstance(raised, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            Run._has_oracle(run)
        return
    assert Run._has_oracle(run) is False
    assert said == [f"warning: digits: its oracle is left out: {'SystemExit: ' * (raised.args == (3,))}{raised}"]


# ---------------------------------------------------------------------- warnings while a run can still be saved
FINE = {
    "tools/rate": 0.9, "groups/idle": 0.1, "episodes/truncated": 0.0, "episodes/faults": 0.0,
    "reward/faults": 0.0, "tools/zoom/raised": 0.09, "tools/zoom/success": 0.3, "replies/well_formed": 0.9,
    "sampling/logp_difference/mean": 9e-4, "entropy": 0.5, "answers/beyond_right": 0.3, "held_out/apart": 0.2,
    "verdict/blind": 0.1,
}  # fmt: skip


@pytest.fixture
def watched():
    def run(*logs, main=True, max_steps=1000, **given):
        told = []
        alarms = callbacks.Alarms(told.append)
        if given:
            args = SimpleNamespace(bf16=False, fp16=False, gradient_accumulation_steps=1, steps_per_generation=1)
            vars(args).update({"num_iterations": 1, **given})
            alarms.on_train_begin(args, None, None, model=torch.nn.Linear(1, 1))
        for step, changed in enumerate(logs, 1):
            state = SimpleNamespace(global_step=step, is_world_process_zero=main, max_steps=max_steps, logging_steps=1)
            alarms.on_log(None, state, None, logs={**FINE, **changed})
        assert len(told) == len(alarms.fired)
        return told

    return run


@each("metric, value, words", [
    ("tools/rate", 0.0, ["tool use has collapsed", "in 18% of", "down from 90%"]),
    ("groups/idle", 0.95, ["95% of the groups teach nothing", "rollout.temperature"]),
    ("episodes/truncated", 0.7, ["70% of the episodes are truncated", "max_turns"]),
    ("episodes/faults", 0.2, ["20% of the episodes end by a fault", "rollout.timeout"]),
    ("reward/faults", 0.2, ["the reward fails on 20%", "judge"]),
    ("tools/zoom/raised", 0.11, ["the tool zoom raises in 11%", "server"]),
    ("tools/zoom/success", 0.0, ["0% of the calls of the tool zoom succeed", "docs/families.md"]),
    ("sampling/logp_difference/mean", 2e-3, ["log-probs differ by 0.002", "docs/how_it_works.md"]),
    ("entropy", 0.1, ["has fallen to 0.", "from 0.5", "train.learning_rate"]),
    ("verdict/blind", 0.3, ["right answers without looking rise: 26%", "from 10%", "evaluate --pictures"]),
    ("answers/beyond_right", 0.5, ["most answers are the same", "50% more", "viewbox view"]),
    ("held_out/apart", 0.3, ["moved away from that of held-out tasks, by 0.30", "log.keep_best"]),
    ("replies/well_formed", 0.0, ["0% of the replies can be read", "supervised warm start", "docs/families.md"]),
])  # fmt: skip
def test_each_trouble_is_told_once_with_what_may_help(watched, metric, value, words):
    (told,) = (
        watched(*[{metric: value}] * 3 * callbacks.ALARM_STEPS)
        if metric not in ("tools/rate", "entropy", "verdict/blind")
        else watched(*[{}] * callbacks.ALARM_STEPS, *[{metric: value}] * 3 * callbacks.ALARM_STEPS)
    )
    assert all(word in told for word in words), told
    assert {alarm.metric.replace("*answers", "answers").replace("*", "zoom") for alarm in callbacks.ALARMS} == set(FINE)


N, NAN = callbacks.ALARM_STEPS, float("nan")
USED, FAR, BAD = ([{"tools/rate": 0.52}] * N, [{"sampling/logp_difference/mean": 0.05}] * N,
                  [{"episodes/truncated": 1.0}] * N)  # fmt: skip
NOTHING = [{"reward": 0.0, "groups/idle": 1.0, "grad_norm": 0.0}] * 3
EQUAL = "100% of the groups teach nothing: their advantages are all 0, as of equal rewards (last 3 steps)"
TOLD = [  # what is logged at each step, settings, and words of what is told
    # below a quarter of its best mean, tool use has collapsed
    ([*USED, *[{"tools/rate": 0.14}] * 2 * N], {}, []), ([*USED, *[{"tools/rate": 0.08}] * 2 * N], {}, ["from 52%"]),
    # log-probs may differ by rounding in two bytes, and where a batch serves several updates; in float32 by 1e-3
    (FAR, {"bf16": False}, [""]), (FAR, {"bf16": True}, []), (FAR, {"num_iterations": 2}, []),
    ([{"sampling/logp_difference/mean": 0.2}] * N, {"bf16": True}, ["differ by 0.2"]),
    (NOTHING, {"max_steps": 3}, [EQUAL]), (NOTHING, {}, []),  # a run of fewer steps is watched over all of them
    ([{}] * 50, {}, []), ([*[{}] * 10, {"tools/rate": 0.0}, *[{}] * 10], {}, []),  # one bad step
    ([{"tools/rate": 0.0}] * 50, {}, []),  # it never used tools: no collapse
    ([{"tools/zoom/success": NAN, "tools/zoom/raised": None}] * 50, {}, []),  # no episode has it
    ([*BAD, *[{}] * N, *BAD], {}, ["", ""]),  # it came back
]  # fmt: skip


@each("logs, settings, words", TOLD)
def test_what_is_no_trouble_is_not_told_and_what_comes_back_is_told_again(watched, logs, settings, words):
    for told, word in zip(watched(*logs, **settings), words, strict=True):
        assert word in told
    assert watched(*logs, main=False, **settings) == []


def test_held_out_play_is_watched_at_once_and_compared_with_training(watched):
    def play(*rewards):
        return watched(*[{"reward": reward, "held_out/reward": held_out} for reward, held_out in rewards])

    first, more = [(None, 0.5), *[(0.5, None)] * callbacks.ALARM_STEPS], [(0.7, None)] * callbacks.ALARM_STEPS
    (told,) = play(*first, (0.5, 0.5), *more, (0.7, 0.4))  # 0.5 - 0.5, then 0.7 - 0.4
    assert "has moved away from that of held-out tasks, by 0.30" in told
    assert len(play(*first, *more, (0.7, 0.4))) == 1  # measured before and after
    assert play(*first, *more, (0.7, 0.6)) == []
    assert play((0.7, 0.4), *more, (0.7, 0.4)) == []  # held-out tasks are harder, as ever
    (told,) = watched({"held_out/answers/beyond_right": 0.9})
    assert "90% more" in told
