"""`viewbox leaderboard`: rows of real and of forged runs, the same run twice, several processes at once."""

import json
import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from tests.support.forged_runs import forge_run, has_run, make_line
from tests.support.servers import make_completion, serve
from viewbox.cli import app as cli
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import ConfigError, StoreError
from viewbox.rollouts.leaderboard.board import add_run, read_board, render_board

ENV = Digits()
RIGHT, WRONG = viewer.write_answer(ENV, ENV.tasks[0]), '{"label": "none", "bbox": [0, 0, 10, 10]}'
NASTY = "<script>alert(1)</script>|[x](javascript:x)\n# h\x1b]52;c;eA==\x07\u202e`"


def reply(body, number):
    """Right after a look; wrong without tools."""
    if any(message["role"] == "tool" for message in body["messages"]):
        return make_completion(RIGHT)
    return make_completion("", ("a", "zoom", '{"factor": 2}')) if body.get("tools") else make_completion(WRONG)


@pytest.fixture
def viewbox(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["viewbox", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        said = capsys.readouterr()
        return caught.value.code or 0, said.out, said.err

    return call


@pytest.mark.parametrize("kind", ["evaluate", "rollout"])
def test_the_command_of_a_row_plays_the_same_again(viewbox, tmp_path, kind):
    first, again = tmp_path / "runs" / "it's", tmp_path / "again"
    with serve(reply) as server:
        line = (kind, "--env", "digits", "--model", "m", "--tasks", 3, "--endpoint", server.url, "env.max_turns=4")
        assert viewbox(*line, "--out", first)[0] == 0
        status, out, _ = viewbox("leaderboard", "add", first)
        assert status == 0, out
        (row,) = read_board("leaderboard.json").rows
        assert (row.model, row.environment, row.tasks, row.episodes) == ("m", "digits", 3, 3)
        assert row.calls.mean == 1.0
        assert (row.tool_gain is not None) == (kind == "evaluate")
        program, *words = shlex.split(row.command)
        assert program == "viewbox"
        assert viewbox(*words, "--out", again)[0] == 0
    viewbox("leaderboard", "add", again)
    rows = {one.run: one for one in read_board("leaderboard.json").rows}
    second = rows["again"]
    for name in ("reward", "tool_gain", "calls", "tokens", "settings", "played", "model"):
        assert getattr(second, name) == getattr(row, name), name


def test_a_run_that_is_added_again_replaces_its_row(tmp_path):
    run = forge_run(tmp_path / "run", [make_line(0), make_line(1)])
    board = tmp_path / "board.json"
    assert add_run(board, run).reward.mean == 1.0
    with (run / "episodes" / "episodes.jsonl").open("a") as file:
        file.write(json.dumps(make_line(2, scores={"total": 0.0})) + "\n")
    add_run(board, os.path.relpath(run))
    (row,) = read_board(board).rows
    assert (row.episodes, row.reward.count) == (3, 3)
    assert row.reward.mean == pytest.approx(2 / 3)


def test_processes_that_add_at_once_keep_all_rows(tmp_path):
    runs = [forge_run(tmp_path / f"run{number}") for number in range(4)]
    code = (
        "import sys; from viewbox.rollouts.leaderboard.board import add_run\nfor _ in range(10): add_run(*sys.argv[1:])"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, tmp_path / "board.json", run]) for run in runs]
    assert [process.wait() for process in started] == [0] * 4
    assert sorted(row.run for row in read_board(tmp_path / "board.json").rows) == [run.name for run in runs]
    assert not list(tmp_path.glob("*.tmp"))


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.attributes = set(), set()

    def handle_starttag(self, tag, attributes):
        self.found.add(tag)
        self.attributes |= {name for name, _ in attributes}


@pytest.mark.parametrize("place", ["model", "env", "episode", "endpoint"])
def test_text_of_a_stranger_stays_text(tmp_path, place):
    config = {
        "env": {"name": NASTY if place == "env" else "digits"},
        "model": {"name": NASTY if place == "model" else "m"},
    }
    lines = [make_line(0, environment=NASTY if place == "episode" else "digits")]
    run = forge_run(tmp_path / "run", lines, None if place == "episode" else config)
    record = {"tasks": 1, "group": 1, "seed": 0, "endpoint": "$(touch RAN);" + NASTY if place == "endpoint" else None}
    (run / "rollout.json").write_text(json.dumps(record))
    add_run(tmp_path / "board.json", run)
    page = (tmp_path / "board.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert "script" not in tags.found
    assert tags.attributes <= {"charset", "name", "content", "http-equiv", "lang"}
    text = (tmp_path / "board.md").read_text()
    assert all(letter == "\n" or letter.isprintable() for letter in text + page)
    shown = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    tags = Tags()
    tags.feed(shown)
    assert tags.found <= {"h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "ol", "li", "code", "pre"}
    assert shown.count("<h1>") == 1
    cells = [len(re.findall(r"<t[hd]\b", row)) for row in re.findall(r"<tr>.*?</tr>", shown, re.S)]
    assert cells == [2, 2, 11, 11]


def test_a_command_never_leaves_its_quotes(tmp_path):
    run = forge_run(tmp_path / "run; touch RAN", config={"env": {"name": "digits"}, "model": {"name": "m"}})
    record = {"tasks": 1, "group": 1, "seed": 0, "endpoint": "http://h/$(touch RAN)", "extra": {"a": "'; touch RAN #"}}
    (run / "rollout.json").write_text(json.dumps(record))
    row = add_run(tmp_path / "board.json", run)
    said = subprocess.run(f"viewbox() {{ printf '%s\\n' \"$@\"; }}\n{row.command}", shell=True, cwd=tmp_path,
                          executable="/bin/bash", capture_output=True, text=True, check=True)  # fmt: skip
    assert said.stdout.splitlines() == [
        "rollout", "--config", "run; touch RAN/config.yaml", "--tasks", "1", "--group", "1", "--seed", "0",
        "--endpoint=http://h/$(touch RAN)", "endpoint.extra={\"a\": \"'; touch RAN #\"}",
    ]  # fmt: skip
    assert not (tmp_path / "RAN").exists()


def test_no_code_of_a_run_is_imported(tmp_path):
    config = {"env": {"name": "helper:E"}, "reward": {"type": "python", "path": "helper.py:score"}}
    run = forge_run(tmp_path / "run", [make_line(0, environment="helper:E")], config, code=True)
    assert add_run(tmp_path / "board.json", run).environment == "helper:E"
    assert not has_run(run)


def test_a_bad_line_costs_itself_and_is_counted(tmp_path):
    lines = [
        "{",
        make_line(0, scores={"total": 1e300}),
        make_line(1),
        make_line(2, info={"usage": {"completion_tokens": -1}}),
    ]
    row = add_run(tmp_path / "board.json", forge_run(tmp_path / "run", lines))
    assert (row.episodes, row.skipped, row.reward.mean, row.tokens) == (2, 2, 1.0, None)
    assert "2 (2 unreadable)" in (tmp_path / "board.html").read_text()


def test_long_names_and_long_settings_are_cut(tmp_path):
    run = forge_run(tmp_path / "run", config={"env": {"name": "e" * 10_000}, "model": {"name": "m" * 10_000}})
    record = {"tasks": 1, "group": 1, "seed": 0, "endpoint": "http://h", "extra": {"a": "b" * 10_000}}
    (run / "rollout.json").write_text(json.dumps(record))
    row = add_run(tmp_path / "board.json", run)
    assert (len(row.model), len(row.environment), row.command) == (200, 200, "")
    assert read_board(tmp_path / "board.json").rows == [row]


@pytest.mark.parametrize("record", [{"tasks": "; rm"}, {"tasks": 1, "group": -1}, {"tasks": True}, []])
def test_a_forged_record_is_refused_by_name(tmp_path, record):
    run = forge_run(tmp_path / "run", config={"env": {"name": "digits"}})
    (run / "rollout.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"rollout\.json"):
        add_run(tmp_path / "board.json", run)
    assert not (tmp_path / "board.json").exists()


def test_a_run_without_episodes_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no episodes; 1 lines"):
        add_run(tmp_path / "board.json", forge_run(tmp_path / "run", ["{"]))
    with pytest.raises(StoreError, match="no such folder"):
        add_run(tmp_path / "board.json", tmp_path / "nowhere")


def test_a_link_out_of_a_run_is_refused(tmp_path):
    forge_run(tmp_path / "mine")
    theirs = forge_run(tmp_path / "theirs")
    (theirs / "with_tools").symlink_to(tmp_path / "mine")
    with pytest.raises(ConfigError, match="leads out"):
        add_run(tmp_path / "board.json", theirs)


def test_of_a_training_run_the_last_held_out_episodes_count(tmp_path):
    config = {"env": {"name": "digits"}, "model": {"name": "m"}, "train": {"steps": 20}}
    run = forge_run(tmp_path / "run", config=config)
    with pytest.raises(ConfigError, match="viewbox evaluate --config"):
        add_run(tmp_path / "board.json", run)
    for step, reward in ((9, 0.25), (10, 0.75)):
        forge_run(run / "held_out" / str(step), [make_line(0, scores={"total": reward})])
        path = run / "held_out" / str(step)
        for file in (path / "episodes").iterdir():
            file.rename(path / file.name)
    row = add_run(tmp_path / "board.json", run)
    assert (row.model, row.reward.mean) == ("m, trained to step 10", 0.75)
    assert row.command == "viewbox train run/config.yaml"


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"format": 2, "rows": []}', '{"format": 1, "rows": [{}]}', "[" * 10**5, '{"format": 1, "rows": 1e999}'],
)
def test_a_file_that_is_no_leaderboard_is_kept_and_named(tmp_path, text):
    board = tmp_path / "board.json"
    board.write_text(text)
    with pytest.raises(ConfigError, match=r"board\.json: not a leaderboard"):
        add_run(board, forge_run(tmp_path / "run"))
    assert board.read_text() == text


def test_the_board_is_a_json_file_and_no_link(tmp_path):
    run = forge_run(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"ends in \.json"):
        add_run(tmp_path / "README.md", run)
    (tmp_path / "board.md").symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError, match=r"board\.md"):
        add_run(tmp_path / "board.json", run)


def test_a_table_is_rendered_again(tmp_path):
    board = tmp_path / "board.json"
    with pytest.raises(ConfigError, match="leaderboard add"):
        render_board(board)
    add_run(board, forge_run(tmp_path / "run"))
    (tmp_path / "board.md").unlink()
    assert [page.name for page in render_board(board)] == ["board.md", "board.html"]
    assert "1.000" in (tmp_path / "board.md").read_text()
