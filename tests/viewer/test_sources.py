"""What the page is made of: the table of a run, also of one in progress, its sets, and the server, reading only."""

import json
import os
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest
import uvicorn

from tests.support.saved_episodes import plays, written
from tests.support.tables import each
from viewbox import ConfigError, Episode, EpisodeTokens, EpisodeWriter, Scores, StoreError, Task, Turn
from viewbox.envs.digits import Digits
from viewbox.viewer.server import Viewer, open_socket
from viewbox.viewer.sources import MAX_COLUMNS, EpisodeIndex, find_sets, read_all


def make(number, **changes):
    return Episode(
        Task(f"t{number}", prompt={"question": "Where?"}, reference={"kind": "a", "box": [0, 0, 1, 1]}),
        answer={"label": number}, scores=Scores(number / 10, components={"label": 1.0, "none": None}),
        info={"step": number, "sample": 0}, **{"turns": (Turn("assistant", "x"),), **changes}
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "run" / "episodes", *(make(n) for n in range(3)))


def read(folder):
    index = EpisodeIndex(folder)
    index.refresh()
    return index


def test_a_row_has_the_fields_that_filters_name(folder):
    wanted = {
        "line": [1, 2, 3], "task.id": ["t0", "t1", "t2"], "scores.total": [0.0, 0.1, 0.2], "answer.label": [0, 1, 2],
        "scores.components.none": [None] * 3, "task.reference.box": [[0, 0, 1, 1]] * 3, "info.step": [0, 1, 2],
        "num_turns": [1, 1, 1]
    }  # fmt: skip
    assert {name: values for name, values in read(folder).columns.items() if name in wanted} == wanted


def test_what_is_appended_is_found_and_a_line_that_is_being_written_waits(folder):
    index = read(folder)
    assert index.refresh() == 0
    with EpisodeWriter(folder) as writer:
        writer.append(make(3))
    line = (folder / "episodes.jsonl").read_bytes().splitlines(keepends=True)[0]
    with (folder / "episodes.jsonl").open("ab") as file:
        file.write(line[:40])
        file.flush()
        assert index.refresh() == 1
        file.write(line[40:])
    assert index.refresh() == 1
    assert index.columns["task.id"] == ["t0", "t1", "t2", "t3", "t0"]
    assert index.to_dict(3)["columns"]["line"] == [4, 5]


def test_each_episode_is_read_by_its_line(folder):
    with (folder / "episodes.jsonl").open("ab") as file:
        file.write(b"junk\n\n")
    written(folder, make(7, tokens=EpisodeTokens((1,), (2,), (1,), (-0.5,))))
    index = read(folder)
    assert index.columns["line"] == [1, 2, 3, 6]
    assert (index.reader.skipped, list(index.reader.unreadable)) == (1, [4])
    assert index.read(2).task.id == "t1"
    assert index.read(6, tokens=True).tokens.completion_ids == (2,)
    assert (index.read(4), index.read(99)) == (None, None)
    for path in (folder / "tokens").iterdir():
        path.write_bytes(b"")
    assert read(folder).read(6, tokens=True).task.id == "t7"  # tokens that cannot be read cost themselves


def test_odd_values_become_cells_of_json(folder, tmp_path):
    lines = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    lines[0]["answer"] = {f"k{n}": n for n in range(200)}
    lines[1]["answer"] = {"label": "x" * 10_000, "deep": [[1], {"a": 2}], "big": 10**200, "list": ["y" * 999]}
    lines[2]["info"]["step"] = "soon"
    (folder / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    index = read(folder)
    assert len(index.columns) == MAX_COLUMNS
    assert {len(values) for values in index.columns.values()} == {3}
    assert len(json.dumps(index.to_dict(), allow_nan=False)) < 20_000


@each("word, count", [("lesion", 2), ("LESION", 2), ("no lesion", 1), ("kas", 1), ("content", 30), ("nowhere", 0)])
def test_a_search_in_the_turns_finds_what_decoding_every_line_finds(tmp_path, word, count):
    said = ["x"] * 26 + ["No lesion.", "a Lesion", "\u212aa\u017f", "\x07l"]  # Kelvin and a long s have these letters
    folder = written(tmp_path / "run", *(make(0, turns=(Turn("assistant", text),)) for text in said))
    for condition in (f"turns~{word}", f"turns~{word}|{word}"):  # the second decodes every line
        assert len(read(folder).select([condition])) == count


# ---------------------------------------------------------------------- sets
def test_held_out_episodes_and_the_sides_of_an_evaluation_are_sets(folder, tmp_path):
    for step in ("0", "20", "100"):
        written(tmp_path / "run" / "held_out" / step, make(1))
    for side in ("with_tools", "without_tools"):
        written(tmp_path / "both" / side / "episodes", make(1))
    sets = find_sets([tmp_path / "run", tmp_path / "both"])
    names = ["run", "run held out 0", "run held out 20", "run held out 100", "both with tools", "both without tools"]
    assert [one.name for one in sets] == names
    assert read_all(sets) == 8
    with pytest.raises(StoreError, match="no episodes here"):
        find_sets([tmp_path / "run" / "held_out"[:3]])


def test_a_run_that_was_cut_is_named_and_one_that_is_linked_from_elsewhere_is_shown(folder, tmp_path):
    (tmp_path / "run" / "summary.json").write_text('{"episodes": 5}')
    (tmp_path / "linked").symlink_to(tmp_path / "run")
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "with_tools").symlink_to(tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}')
    sets = find_sets([tmp_path / "linked", tmp_path / "both"])
    assert [one.name for one in sets] == ["run", "both with tools"]
    assert sets[0].read_curves()["series"] == {"reward": [0.5]}
    assert (read_all(sets), sets[0].index.reader.skipped) == (6, 2)
    assert sets[0].index.reader.unreadable == {4: "cut off: summary.json counts 5 episodes, 3 are here"}


def test_the_curves_are_those_of_training_and_only_of_its_own_episodes(folder, tmp_path):
    written(tmp_path / "run" / "held_out" / "0", make(1))
    lines = ['{"step": 1, "reward": 0.5, "loss": 3}', "junk", '{"step": 2, "reward": NaN, "tools/rate": 0.25}', "[]",
        '{"step": "x"}']  # fmt: skip
    (tmp_path / "run" / "metrics.jsonl").write_text("\n".join(lines))
    own, held_out = find_sets([tmp_path / "run"])
    assert own.read_curves() == {"step": [1, 2], "series": {"reward": [0.5, None], "tools/rate": [None, 0.25]}}
    assert held_out.read_curves() is None
    puts = (os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), lambda path: path.mkdir())
    for put in puts:  # what is no file of the run is not read
        (tmp_path / "run" / "metrics.jsonl").unlink()
        put(tmp_path / "run" / "metrics.jsonl")
        assert find_sets([tmp_path / "run"])[0].read_curves() is None


# ---------------------------------------------------------------------- the server
KEY = "secret"


@contextmanager
def serving(*runs):
    sets = find_sets(runs)
    read_all(sets)
    opened = open_socket(0)
    settings = uvicorn.Config(Viewer(sets).build_app(KEY), log_level="warning", lifespan="off")
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield opened.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)
        opened.close()


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    played = written(tmp_path_factory.mktemp("run") / "episodes", *plays(Digits(canvas=160, max_turns=6)))
    with serving(played) as number:
        yield number


def ask(port, path, method="GET", **headers):
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers=headers)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply, content


def ask_json(port, path):
    reply, content = ask(port, f"/{KEY}/{path}")
    assert reply.status == 200
    return json.loads(content)


def test_rows_episodes_and_pictures_are_served(port):
    assert [one["name"] for one in ask_json(port, "sets")] == ["episodes"]
    rows = ask_json(port, "rows/0")
    assert len(rows["columns"]["line"]) == 21
    assert ask_json(port, "rows/0?start=20")["columns"]["line"] == [21]
    page = ask_json(port, "episode/0/3")
    assert page["line"] == 3
    one = page["pictures"]["p1"] if "p1" in page["pictures"] else next(iter(page["pictures"].values()))
    reply, content = ask(port, f"/{KEY}/image/0/3/{one['hash']}.png")
    assert (reply.status, reply.headers["content-type"], content[:4]) == (200, "image/png", b"\x89PNG")


WITHOUT_KEY = ["/", "/wrong/", f"/{KEY}x/", f"/{KEY}/../etc/passwd", "/sets", f"//{KEY}/sets"]
NOWHERE = [
    "rows/9", "rows/-1", "rows/0?start=x", "rows/0?start=" + "9" * 400, "episode/0/0", "episode/0/22", "episode/5/1",
    "episode/0/" + "9" * 5000, "image/0/3/..%2f..%2fconfig.yaml.png", "image/0/3/" + "0" * 40 + ".png", "compare/0/7"
]  # fmt: skip
HOSTS = ("evil.example", "evil.example:80", "127.0.0.1.evil.example")  # a name that only points here
REFUSED = [
    *((path, (404,), "GET", {}) for path in WITHOUT_KEY),
    *((f"/{KEY}/{path}", (400, 404), "GET", {}) for path in NOWHERE),
    *((f"/{KEY}/sets", (405,), method, {}) for method in ("POST", "PUT", "DELETE", "PATCH")),
    *((f"/{KEY}/sets", (400,), "GET", {"Host": host}) for host in HOSTS),
]


@each("path, statuses, method, headers", REFUSED)
def test_without_the_key_there_is_nothing_and_with_it_nothing_can_be_changed(port, path, statuses, method, headers):
    assert ask(port, path, method, **headers)[0].status in statuses


def test_the_page_may_run_nothing_but_itself(port):
    reply, content = ask(port, f"/{KEY}/")
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert b"http://" not in content.replace(b"http://www.w3.org/2000/svg", b"")
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in reply.headers


def test_a_port_that_is_taken_is_an_error(port):
    with pytest.raises(ConfigError, match=f"--port {port}"):
        open_socket(port)
