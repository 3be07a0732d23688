"""`viewbox ask`: one question by command, and a conversation in a terminal."""

import json
import os
import pty
import select
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import viewbox
from tests.support.github_server import LocalGitHub, serve_github
from tests.support.servers import make_completion, make_response, serve

FOLDER = str(Path(viewbox.__file__).parent.parent)
DEAD = "http://127.0.0.1:9/v1"
CALL = make_completion("", ("c1", "zoom", '{"factor": 2}'))
TALK = [CALL, '{"ask": "Standing?"}', '{"answer": "an effusion"}', '{"answer": "or atelectasis"}', '{"answer": "none"}']


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("film.png", "other.png"):
        Image.fromarray(np.random.default_rng(len(name)).integers(0, 255, (60, 70)).astype(np.uint8)).save(name)
    return tmp_path


@pytest.fixture
def run(viewbox):
    """The command in this process, where `viewbox` is the package."""
    return partial(viewbox, "ask")


@contextmanager
def asking(*replies):
    """The words that name a server of these replies, one after the other, and the server."""

    def answer(body, number):
        said = replies[min(sum(one["role"] == "assistant" for one in body["messages"]), len(replies) - 1)]
        return said if isinstance(said, dict) else make_completion(said)

    with serve(answer) as server:
        yield ("--endpoint", server.url, "--model", "m"), server


def talk(arguments, lines, prompt="you: "):
    """Return the status and the screen of a command in a terminal, in which somebody types a line at each prompt."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["PYTHONPATH"] = FOLDER
        os.execv(sys.executable, [sys.executable, "-m", "viewbox", "ask", *arguments])
    screen, read, left, deadline = b"", 0, list(lines), time.monotonic() + 120
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            part = os.read(terminal, 2**16)
        except OSError:  # the command has ended
            break
        screen += part
        if left and screen[read:].endswith(prompt.encode()):
            read = len(screen)
            os.write(terminal, f"{left.pop(0)}\n".encode())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), screen.decode().replace("\r\n", "\n")


@pytest.mark.slow
def test_a_conversation_in_a_terminal_is_one_stored_episode(folder):
    lines = ["yes, PA", "alternatives?", "@none.png here?", "@other.png and here?", ""]
    with asking(*TALK) as (at, _):
        status, screen = talk(("chest_xray", "film.png", "An effusion?", *at, "--out", "run"), lines)
    assert status == 0, screen
    said = "the model asks: Standing?", "answer: an effusion", "answer: or atelectasis", "stored: run", "-> zoom"
    said += ("error: image 'none.png': there is no such file",)  # which costs a line
    assert [words for words in said if words not in screen] == []
    (episode,) = viewbox.load("run")
    assert [episode.answer, len(episode.task.images), episode.scores] == [{"answer": "none"}, 2, None]
    shown = [line.split("] ")[1] for line in screen.splitlines() if "[picture]" in line]
    assert len(shown) == 3
    assert all(Path(path).is_file() for path in shown)


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_said(folder):
    with asking(*TALK) as (at, _):
        status, screen = talk(("chest_xray", "film.png", "An effusion?", *at, "--out", "run"), ["yes", "\x03"])
    assert status == 130, screen
    assert "stopped; what was said is stored" in screen
    (episode,) = viewbox.load("run")
    assert episode.answer == {"answer": "an effusion"}


def test_one_question_is_answered_as_text_or_as_json(folder, run):
    with asking('{"answer": "yes"}') as (at, _):
        given = ("vqa", "film.png", "other.png", "Alike?", *at, "--out", "run")
        spoken, written = run(*given), run(*given, "--format", "json")
    assert (spoken[0], "answer: yes" in spoken[1], written[0]) == (0, True, 0)
    assert json.loads(written[1])["answer"] == {"answer": "yes"}
    assert len(viewbox.load("run")) == 2  # a folder keeps the conversations that are in it


def list_tools(body):
    return {tool["function"]["name"] for tool in body["tools"]}


def test_a_text_and_specialists_are_given_by_file(folder, run):
    Path("context.csv").write_text("finding,mm\nnodule,7\n")
    Path("more.yaml").write_text("specialists:\n  search: {kind: literature}\n")
    with asking('{"answer": "7"}') as (at, server):
        status, *_ = run("vqa", "film.png", "How large?", "--file", "context.csv", "--specialists", "more.yaml", *at)
    assert status == 0
    (body,) = server.bodies
    assert "context.csv:\nfinding,mm\nnodule,7" in json.dumps(body["messages"]).replace("\\n", "\n")
    assert "search_web" in list_tools(body)


REFUSED = [
    ("", "give an environment, images and a question"), ("vqb film.png ?", "did you mean 'vqa'"),
    ("vqa film.png", "'film.png': is a file; the last word is the question"),
    ("vqa none.png ?", "image 'none.png': there is no such file"),
    ("literature_vqa film.png ?", "its articles are invented"),
    ("vqa film.png ? --specialists list.yaml", "specialists = ['a']; allowed: a mapping"),
    ("vqa film.png ? --file film.png", "--file film.png: cannot be read as text")
]  # fmt: skip


def test_what_cannot_be_asked_is_said_in_a_line(folder, run):
    Path("list.yaml").write_text("- a\n")
    for words, complaint in REFUSED:
        status, _, err = run(*words.split(), "--endpoint", DEAD, "--model", "m")
        assert (status, complaint in err, "Traceback" in err) == (2, True, False), err
        assert not list(folder.glob("runs/*"))


def test_a_config_names_the_server_and_live_search_is_offered_in_any_environment(folder, run):
    with asking('{"answer": "yes", "evidence": []}') as (_, server):
        config = f"model: {{name: m}}\nenv: {{name: literature_vqa}}\nendpoint: {{url: '{server.url}', retries: 1}}\n"
        Path("mine.yaml").write_text(config)
        status, _, err = run("mine.yaml", "film.png", "An effusion?", "--live", "--view", "--out", "run")
    assert status == 0, err
    assert "temperature" not in server.bodies[0]  # the server's
    assert {"search_web", "search_images"} <= list_tools(server.bodies[0])
    assert Path("run/report.html").stat().st_size > 1000


def test_live_facts_of_repositories_come_from_github_and_without_live_from_the_record(folder, viewbox, monkeypatch):
    look = make_completion("", ("c", "repo_info_batch", '{"urls": ["github.com/owner/good"]}'))
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    with serve_github(folder) as (github, setup), asking(look, '{"explanation": "none"}') as (at, server):
        source = LocalGitHub(setup)
        monkeypatch.setattr("viewbox.envs.software_adviser.github.open_github", lambda: source)
        github.add("owner/good")
        for options, told, asked in (((), "owner/good: failed (nothing is recorded", 0), (["--live"], "stars 1234", 2)):
            status, out, err = viewbox("ask", "software_adviser", "film.png", "Which?", *at, *options)
            assert (status, told in out, len(github.arrivals)) == (0, True, asked), out + err
        status, _, _ = viewbox("ask", "software_adviser", "film.png", "?", *at, "--live", "--set", "env.live=false")
        assert (status, len(github.arrivals)) == (0, 2)
    assert {"search_web", "repo_info_batch"} <= list_tools(server.bodies[-1])


def test_a_server_that_refuses_the_schema_is_asked_without_it_from_then_on(folder):
    def answer(body, number):
        refused = make_response(400, {"error": {"message": "response_format is not supported"}})
        return refused if "response_format" in body else make_completion('{"answer": "yes"}')

    with serve(answer) as server:
        with viewbox.open_session("vqa", viewbox.connect(server.url, model="m"), tools=[]) as session:
            assert [str(session.ask("?")), str(session.ask("sure?"))] == ["yes", "yes"]
        bare = viewbox.connect(server.url, model="m", response_format=False)
        with viewbox.open_session("vqa", bare, tools=[]) as session:
            session.ask("?")
    assert ["response_format" in body for body in server.bodies] == [True, False, False, False]
