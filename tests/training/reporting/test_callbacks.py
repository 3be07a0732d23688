"""What a person sees of a run, on a terminal and in a log file."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from viewbox.envs.digits import Digits
from viewbox.training.reporting import report
from viewbox.training.reporting.callbacks import MetricsFile, ProgressPrinter, format_duration
from viewbox.training.run import Run


@pytest.fixture
def screen():
    """(a printer, what it wrote) for a terminal or a file."""

    def make(terminal):
        written = io.StringIO()
        return ProgressPrinter(Console(file=written, force_terminal=terminal, width=100)), written

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
    metrics = MetricsFile(tmp_path / "metrics.jsonl", printer)
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


@pytest.mark.parametrize(("seconds", "read"), [(0, "0:00"), (61, "1:01"), (3661, "1:01:01"), (90000, "1 d 1:00:00")])
def test_durations_are_written_as_people_read_them(seconds, read):
    assert format_duration(seconds) == read


@pytest.mark.parametrize("scored", [(), ("before",), ("before", "after"), ("before", "oracle")])
def test_held_out_figures_without_a_reward_are_shown_as_missing(tmp_path, capsys, scored):
    names = ("before", "after", "oracle", "oracle_after")
    held_out = {name: {"tools/rate": 0.5, **({"reward": 0.25} if name in scored else {})} for name in names}
    summary = {"name": "run", "held_out": held_out, "seconds": {"training": 1}}
    report.draw_curve(tmp_path, [{"step": 1, "reward": 0.5, "tools/rate": 0.5}], summary)
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
    run = SimpleNamespace(held_out=Guessing(), _print_once=said.append)
    if isinstance(raised, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            Run._has_oracle(run)
        return
    assert Run._has_oracle(run) is False
    assert said == [f"warning: digits: its oracle is left out: {'SystemExit: ' * (raised.args == (3,))}{raised}"]
