"""Nothing that a run says acts on the terminal: escapes, the clipboard, hidden and reversed text are written out."""

import io
import logging

import yaml
from rich.console import Console

from tests.support.forged_runs import REFERENCE, forge_run, make_line
from tests.support.tables import each
from viewbox.cli.command_builder import show
from viewbox.cli.figures import show_summary
from viewbox.cli.progress import Progress
from viewbox.records import Episode, Scores, Task
from viewbox.rollouts.scoring.metrics import compute_episode_metrics
from viewbox.utils.exit_status import guard
from viewbox.utils.terminal import PrintableFormatter, make_printable
from viewbox.utils.terminal import make_line as to_line

EVIL = [
    "\x1b]52;c;ZWNobyBwd25lZA==\x07", "\x1b]0;owned\x1b\\", "\x1b[2J\x1b[H", "\x1b[31mred\x1b[0m",
    "\x9b31m\x9d52;c;eA==\x9c", "safe\b\b\b\bevil", "safe\revil", "\a\a\a", "abc\u202etxt.exe\u2066x",
    "a\u200bb\u200dc\ufeffd\u2060e", "a\U000e0041\U000e0042", "\ud83d",
    "one\ntwo\r\nthree\x0bfour\x0cfive\u2028six\x85seven", "[bold red]x[/bold red] [link=http://x]y[/link] :smile:",
    "x\\", "a\0b\x7f", '\x1bP$q"p\x1b\\\x1b_x\x1b\\', "\ue000\U000f0000",
]  # fmt: skip
SOME = [" ".join(EVIL), EVIL[12], EVIL[13]]  # all at once; line breaks; what rich would read as markup
ALLOWED = set(map(chr, range(32, 127))) | {"\n"}


def is_safe(text):
    return all(letter.isprintable() or letter == "\n" for letter in text)


@each("evil", EVIL)
def test_invisible_letters_are_written_out(evil):
    assert is_safe(make_printable(evil))
    assert to_line(evil).isprintable()
    assert make_printable("Ärzte sehen 頁 🙂 é") == "Ärzte sehen 頁 🙂 é"


@each("evil", SOME)
def test_values_of_a_group(tmp_path, viewbox, evil):
    said = {"environment": evil, "flags": [evil], "system_prompt": evil, "info": {"step": evil, "error": evil}}
    said |= {"answer": {"label": evil}, "scores": {"total": 1, "components": {evil: 0.5}}}
    tasks = [{"id": f"{evil}{number}", "reference": REFERENCE} for number in range(2)]
    run = forge_run(tmp_path / "gift", [make_line(task=task, **said) for task in tasks])
    given = ("score", run, "--reward", "viewbox.rewards:ExactMatchReward")
    for number, field in enumerate(["answer.label", "environment", "task.id", "info.step", "flags", "system_prompt"]):
        status, out, err = viewbox(*given, "--group-by", field, "--name", f"c{number}")
        assert (status, err, is_safe(out)) == (0, "", True)
    assert set(viewbox(*given, "--format", "json", "--name", "own")[1]) <= ALLOWED


@each("evil", SOME)
def test_on_a_terminal_too(tmp_path, viewbox, monkeypatch, evil):
    forge_run(tmp_path / "gift", [make_line(0, answer={"label": evil}, scores={"total": 1, "components": {evil: 1}})])
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, color_system=None, width=200)
    monkeypatch.setattr("rich.console.Console", lambda **settings: console)
    assert viewbox("score", tmp_path / "gift", "--group-by", "answer.label")[0] == 0
    assert is_safe(written.getvalue())


@each("evil", SOME)
def test_errors_of_a_run(tmp_path, viewbox, evil):
    run = forge_run(tmp_path / "gift", ["{" + evil, make_line(0, end_reason=evil), make_line(1)])
    status, out, _ = viewbox("score", run)
    assert (status, is_safe(out)) == (1, True)
    for config in (
        {"env": {"name": f"gift:{evil}"}}, {"env": {"name": evil}}, {"env": {"name": "digits", evil: 1}},
        {"env": {"name": "digits", "split": evil}}, {"reward": {"type": evil}},
        {"reward": {"type": "python", "function": f"gift:{evil}"}},
        {"reward": {"type": "judge", "endpoint": evil, "model": evil, "api_key_env": evil}},
        {"reward": {"type": "exact_match", "field": "label", evil: evil}},
    ):  # fmt: skip
        (run / "config.yaml").write_text(yaml.safe_dump(config))
        status, out, err = viewbox("score", run)
        assert (status, is_safe(out), is_safe(err)) == (2, True, True)


@each("evil", SOME)
def test_reasons_of_a_reward(tmp_path, viewbox, evil):
    forge_run(tmp_path / "gift", [make_line(0, answer={"label": evil})])
    (tmp_path / "reward.yaml").write_text("{type: token_f1, field: label}")
    status, out, err = viewbox("reward", "try", tmp_path / "reward.yaml", "--episode", f"{tmp_path / 'gift'}#1")
    assert (status, is_safe(out), is_safe(err)) == (0, True, True)


@each("evil", SOME)
def test_the_progress_of_a_rollout(evil, capsys):
    written = io.StringIO()
    console = Console(file=written, force_terminal=False, width=200)
    progress = Progress(4, console)
    scores = Scores(0.5, {evil: 0.5})
    progress.add(Episode(Task(evil), scores=scores, end_reason="error", info={"error": evil}))
    progress.printer.print_line(progress.render_line())
    metrics = compute_episode_metrics([Episode(Task("a"), scores=scores)])
    summary = {"environment": evil, "model": evil, "episodes": 1, "metrics": metrics, "errors": {evil: 1}}
    show(summary, show_summary)
    said = capsys.readouterr().out
    assert is_safe(written.getvalue())
    assert is_safe(said.replace("×", "x"))
    assert "[bold red]x[/bold red]" in said or not evil.startswith("[")


@each("evil", SOME)
def test_what_is_logged_and_how_a_command_ends(capsys, evil):
    record = logging.LogRecord("viewbox", logging.WARNING, "", 0, "the judge said %s", (evil,), None)
    assert is_safe(PrintableFormatter().format(record))

    def fail():
        raise RuntimeError(evil)

    assert guard(fail) == 1
    assert is_safe(capsys.readouterr().err)
