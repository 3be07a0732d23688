"""A person's own images of every kind and question: one episode, whatever is said in it, also in a notebook."""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydicom.data import get_testdata_file

import viewbox
from tests.support import ct_folder
from tests.support.servers import make_completion, serve
from tests.support.tables import each
from viewbox import ConfigError, EpisodeWriter, ScriptedPolicy, Task
from viewbox.errors import BadRow
from viewbox.viewer.pictures import Pictures
from viewbox.viewer.sources import find_sets

CHEST = [
    '<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>', '{"ask": "Left or right?"}',
    '{"answer": "an effusion"}', '<tool_call>{"name": "open_image", "arguments": {"image": "image_1"}}</tool_call>',
    '{"answer": "none here"}'
]  # fmt: skip


@pytest.fixture
def run_command(viewbox):
    """The command, where `viewbox` is the package."""
    return viewbox


@pytest.fixture
def film(tmp_path):
    path = tmp_path / "film.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 70)).astype(np.uint8)).save(path)
    return path


def write_plainly(episode):
    return re.sub(r'"uri":("[^"]*"|null)', '"uri":0', episode.to_json())


def test_a_conversation_is_one_episode_that_is_read_back_bit_for_bit(film, tmp_path):
    asked = []
    deep = np.arange(600, dtype=np.uint16).reshape(20, 30)
    with viewbox.open_session("chest_xray", ScriptedPolicy(CHEST), out=tmp_path / "run") as session:
        first = session.ask("An effusion?", film, on_question=lambda said: (asked.append(said), "left")[1])
        second = session.ask("And here?", deep)
        episode = session.episode
    (stored,) = viewbox.load(tmp_path / "run")
    assert (str(first), str(second), asked) == ("an effusion", "none here", ["Left or right?"])
    assert write_plainly(stored) == write_plainly(episode)
    assert np.array_equal(stored.task.images[1].load().pixels, deep)
    assert (stored.scores, stored.answer) == (None, {"answer": "none here"})
    answers = [one["answer"] for one in stored.info["answers"]]
    assert answers == [{"ask": "Left or right?"}, {"answer": "an effusion"}, {"answer": "none here"}]
    assert [turn.views[0].image for turn in stored.turns if turn.views] == [0, 1]
    opened = [result for turn in stored.turns for result in turn.tool_results][-1]
    assert (opened.success, opened.tool_name) == (True, "open_image")


def test_an_image_that_is_shown_later_brings_the_tools_for_images(film):
    seen = []

    def policy(messages):
        seen.append(len(session.play.conversation.tools))
        return '{"answer": "yes"}' if len(seen) < 3 else CHEST[0] if len(seen) == 3 else '{"answer": "closer"}'

    with viewbox.open_session("vqa", policy) as session:
        session.ask("What is an effusion?")
        session.ask("Here?", film)
        assert str(session.ask("Closer?")) == "closer"
        assert seen[0] < seen[1]
        assert session.episode.tools_used() == {"zoom"}


def test_a_question_back_without_a_person_to_answer_is_returned_and_the_next_words_answer_it(film):
    with viewbox.open_session("chest_xray", ScriptedPolicy([CHEST[1], CHEST[2]])) as session:
        asked = session.ask("An effusion?", film)
        assert (asked.question, str(asked)) == ("Left or right?", "Left or right?")
        assert str(session.ask("left")) == "an effusion"


def test_turns_are_counted_anew_for_what_a_person_says_next_but_not_for_a_reply(film):
    replies = ['{"answer": "a", "continue": true}', '{"answer": "b"}', '{"answer": "c", "continue": true}', CHEST[2]]
    with viewbox.open_session("vqa", ScriptedPolicy(replies), max_turns=2) as session:
        assert [str(session.ask("?", film)), str(session.ask("more"))] == ["b", "an effusion"]
    with viewbox.open_session("chest_xray", ScriptedPolicy([CHEST[1]] * 9), max_turns=2) as session:
        said = iter(["left", "right", "both"])
        answer = session.ask("?", film, on_question=lambda asked: next(said))
        assert (answer.question, next(said)) == (None, "right")  # its last turn asked: nothing is left for an answer


LIVE = {"specialists": {"search": {"kind": "literature"}}}  # nothing is searched


@each("name, settings, answer", [
    ("vqa", {}, '{"answer": "yes"}'), ("literature_vqa", LIVE, '{"answer": "yes", "evidence": []}'),
    ("software_adviser", {}, '{"explanation": "none"}'), ("digits", {}, '{"label": "one", "bbox": [0, 0, 500, 500]}'),
    ("phantom", {}, '{"lesion": "no", "bbox": null, "diameter_mm": null}'), ("report", {}, '{"report": "normal"}'),
    ("grounding", {}, '{"boxes": [[0, 0, 0.5, 0.5]]}'), ("consultation", {}, '{"answer": "a cold"}'),
])  # fmt: skip
def test_every_environment_answers_an_own_question_and_play_gives_it_no_score(name, settings, answer, film):
    env, seen = viewbox.make(name, **settings), []
    assert viewbox.ask(env, film, "What is it?", ScriptedPolicy([answer])).value is not None
    task = Task(images=film, prompt={"question": "What?"})
    episode = env.play(task, lambda messages: (seen.extend(messages), answer)[1])
    assert (episode.end_reason, episode.scores.total) == ("answered", None)
    assert len([message for message in seen if message.images]) == 1


def test_a_missing_field_an_invented_literature_and_another_machine_for_restricted_data_are_refused(film):
    class Ward(viewbox.BaseMultiTurnEnv):
        name, answer, restricted, reward = "ward", None, True, viewbox.ExactMatchReward("text")

    with pytest.raises(ConfigError, match=r"task mine: prompt.question is missing, what is asked; given: words"):
        viewbox.make("vqa").play(Task("mine", images=film, prompt={"words": "x"}), ScriptedPolicy(["{}"]))
    with pytest.raises(ConfigError, match=r"specialists\.search: its articles are invented; .*`viewbox ask --live`"):
        viewbox.open_session("literature_vqa", ScriptedPolicy([]))
    with pytest.raises(ConfigError, match="its data is restricted to this machine"):
        viewbox.open_session(Ward(), viewbox.connect("https://models.example/v1", model="m"))


def test_it_works_inside_an_event_loop_and_with_await(film):
    async def cell():
        policy = ScriptedPolicy(['{"answer": "yes"}'])
        waited = await viewbox.ask_async("vqa", film, "?", policy)
        return str(viewbox.ask("vqa", film, "?", policy)), str(waited)

    assert asyncio.run(cell()) == ("yes", "yes")


def test_a_notebook_shows_the_pictures_and_the_boxes_and_runs_nothing_of_the_answer(film):
    answer = viewbox.ask("grounding", film, "?", ScriptedPolicy(['{"boxes": [[0, 0, 0.5, 1]]}']))
    assert answer.boxes == ((0.0, 0.0, 0.5, 1.0),)
    page = answer._repr_html_()
    assert ("data:image/png" in page, "width:50.00%" in page) == (True, True)
    spoken = viewbox.ask("vqa", (), "?", ScriptedPolicy([json.dumps({"answer": "<script>x</script>"})]))
    assert "<script>" not in spoken._repr_html_()


def test_every_turn_is_on_disk_before_the_next(film, tmp_path):
    stored = []

    def policy(messages):
        number = sum(message.role == "assistant" for message in messages)
        (episode,) = viewbox.load(tmp_path / "run")
        stored.append((len(episode.turns), episode.end_reason))
        return CHEST[0] if number == 0 else CHEST[2]

    with viewbox.open_session("chest_xray", policy, out=tmp_path / "run") as session:
        session.ask("?", film)
    assert stored == [(1, "cancelled"), (3, "cancelled")]


def test_a_person_who_stops_keeps_what_was_said(film, tmp_path):
    def policy(messages):
        if any(message.role == "assistant" for message in messages):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # Ctrl-C
            time.sleep(0.5)
        return CHEST[0]

    session = viewbox.open_session("chest_xray", policy, out=tmp_path / "run")
    with session, pytest.raises(KeyboardInterrupt):
        session.ask("?", film)
    (episode,) = viewbox.load(tmp_path / "run")
    assert episode.end_reason == "cancelled"
    assert [turn.role for turn in episode.turns][:3] == ["user", "assistant", "tool_result"]


def test_an_exchange_that_takes_too_long_ends_and_the_person_may_go_on(film):
    async def slow(messages):
        if sum(message.role == "user" for message in messages) == 1:
            await asyncio.sleep(60)
        return '{"answer": "yes"}'

    session = viewbox.open_session("vqa", slow)
    session.timeout = 0.2
    started = time.monotonic()
    assert session.ask("?", film).episode.end_reason == "timeout"
    assert time.monotonic() - started < 30
    assert str(session.ask("again?")) == "yes"
    session.close()


def test_a_later_state_takes_the_place_of_the_one_before_and_another_writer_is_not_overwritten(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        writer.append(viewbox.Episode(Task("first")))
        for text in ("a", "a" * 500, "b"):  # longer, and shorter again
            writer.append(viewbox.Episode(Task("talk"), answer={"text": text}), replaces=True)
            assert [episode.task.id for episode in viewbox.load(tmp_path)] == ["first", "talk"]
        assert viewbox.load(tmp_path)[1].answer == {"text": "b"}
        assert writer.count == 2
        with EpisodeWriter(tmp_path) as other:
            other.append(viewbox.Episode(Task("theirs")))
        with pytest.raises(viewbox.StoreError, match="another process writes to the folder"):
            writer.append(viewbox.Episode(Task("talk")), replaces=True)


def test_what_ends_a_policys_process_ends_its_call_and_no_later_one(film):
    def interrupted(messages):
        raise KeyboardInterrupt

    session = viewbox.open_session("vqa", interrupted)
    with session, pytest.raises((KeyboardInterrupt, RuntimeError)):
        session.ask("?", film)
    assert str(viewbox.ask("vqa", film, "?", ScriptedPolicy(['{"answer": "yes"}']))) == "yes"


def test_the_page_has_the_boxes_of_earlier_answers_and_draws_nothing_that_is_empty(film, tmp_path):
    replies = ['{"boxes": [[0, 0, 0.5, 0.5]]}', '{"boxes": [[0.5, 0.5, 1, 1]]}', '{"boxes": [[0.5, 0.5, 1, 1]]}']
    with viewbox.open_session("grounding", ScriptedPolicy(replies), out=tmp_path / "run") as session:
        for said in ("a nodule", "and below?", "sure?"):
            session.ask(said, film if said == "a nodule" else ())
    (episode,) = viewbox.load(tmp_path / "run")
    marks = Pictures.of(episode).marks
    assert [(mark.kind, mark.corners[0]) for mark in marks] == [("answer", (0.0, 0.0)), ("answer", (0.5, 0.5))]
    (found,) = find_sets([str(tmp_path / "run")])
    found.index.refresh()
    assert "scores.total" not in found.index.columns


ANSWERS = {  # what a server asks back, and says
    "vqa": (None, '{"answer": "yes"}'), "chest_xray": ('{"ask": "Standing?"}', '{"answer": "yes"}'),
    "software_adviser": ('{"conversation": {"question": "Lobes, too?", "context": "Some tools split them."}}',
        '{"choices": [{"name": "lungmask", "accuracy": 90, "why": "it segments lungs"}]}'),
}  # fmt: skip
ROWS = {  # an environment, and the images that it is asked about
    "vqa": ("film.png", "film.jpg", "deep.png", "film.tif", "slice.dcm", "series", "ct.nii.gz", "two", "a picture",
        "an array", "none"),
    "chest_xray": ("slice.dcm", "two"), "software_adviser": ("film.png", "series", "none"),
}  # fmt: skip


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    gray = np.random.default_rng(0).integers(0, 255, (60, 70)).astype(np.uint8)
    deep = np.random.default_rng(1).integers(0, 4000, (60, 70)).astype(np.uint16)
    for name in ("film.png", "film.jpg", "film.tif"):
        Image.fromarray(gray).save(folder / name)
    Image.fromarray(deep).save(folder / "deep.png")
    shutil.copy(get_testdata_file("CT_small.dcm"), folder / "slice.dcm")
    voxels = ct_folder.draw_abdomen(1, lesion=True, stone=False)
    ct_folder.write_dicom(folder / "series", voxels)
    ct_folder.write_nifti(folder / "ct.nii.gz", voxels)
    files = {path.name: str(path) for path in folder.iterdir()}
    memory = {"a picture": Image.fromarray(gray), "an array": deep, "none": ()}
    return files | memory | {"two": [files["film.png"], files["deep.png"]]}


def answer(env):
    """Return a server that looks once, asks back twice if the environment knows questions, and answers."""
    asks, answers = ANSWERS[env]
    said = [*([asks] * 2 if asks else []), answers]

    def reply(body, number):
        place = sum(message["role"] == "assistant" for message in body["messages"])
        looks = any(tool["function"]["name"] == "zoom" for tool in body.get("tools", ()))
        if looks and place == 0:
            return make_completion("", ("c1", "zoom", '{"factor": 2}'))
        return make_completion(said[min(place - looks, len(said) - 1)])

    return reply


@pytest.mark.parametrize(("env", "name"), [(env, name) for env, names in ROWS.items() for name in names])
def test_an_own_request_is_answered_stored_viewed_exported_and_read_back(name, env, images, tmp_path, run_command):
    given, asked, run = images[name], [], tmp_path / "run"
    with serve(answer(env)) as server:
        model = viewbox.connect(server.url, model="m")
        came = viewbox.ask(env, given, "A nodule?", model, lambda said: (asked.append(said), "yes")[1], out=run)
    assert (came.question, came.episode.end_reason, len(asked)) == (None, "answered", 2 * (ANSWERS[env][0] is not None))
    assert came.episode.scores is None
    (stored,) = viewbox.load(run)
    assert write_plainly(stored) == write_plainly(came.episode)
    for ref, own in zip(stored.task.images, Task(images=given).images, strict=True):
        assert np.array_equal(ref.load().pixels, own.load().pixels)
        assert repr(ref.load()) == repr(own.load())
    assert run_command("export", run, "--to", "openai", "--out", tmp_path / "o.jsonl")[0] == 0
    assert run_command("view", run, "--out", tmp_path / "page.html")[0] == 0
    assert json.loads((tmp_path / "o.jsonl").read_text().splitlines()[0])
    assert (tmp_path / "page.html").stat().st_size > 1000


def test_the_adviser_plays_a_table_of_requests_with_their_files(images, tmp_path):
    table = tmp_path / "requests.csv"
    table.write_text(f"words,file\nsegment the lungs,{images['ct.nii.gz']}\nread this aloud,\n")
    env = viewbox.make("software_adviser", requests=str(table))
    file = {"format": "NIfTI", "dimensions": "3D", "size": "64 x 64 x 10 pixels", "voxel size": "5 x 5 x 5 mm"}
    asked = [(task.prompt["words"], dict(task.prompt["file"])) for task in env.tasks]
    assert asked == [("segment the lungs", file), ("read this aloud", {})]
    episode = env.play(env.tasks[0], ScriptedPolicy([ANSWERS["software_adviser"][1]]))
    assert (episode.end_reason, episode.scores.total) == ("answered", None)
    table.write_text("words,file\n,ct.nii.gz\n")
    with pytest.raises(BadRow, match=r"requests\.csv: line 2: column 'words' is null"):
        _ = viewbox.make("software_adviser", requests=str(table)).tasks


CELLS = (
    """
import numpy as np, viewbox
film = np.random.default_rng(0).integers(0, 255, (60, 70)).astype(np.uint8)
model = viewbox.ScriptedPolicy([
    '<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>',
    '{"ask": "Left or right?"}', '{"answer": "an effusion", "bbox": [0.1, 0.1, 0.5, 0.5]}', '{"answer": "or a scar"}',
])
session = viewbox.open_session("chest_xray", model)
session.ask("An effusion?", film)
""",
    'session.ask("left")',
    'session.ask("alternatives?")',
    """
task = viewbox.Task(images=film, prompt={"question": "?"})
print(viewbox.make("vqa").play(task, lambda messages: '{"answer": "yes"}').answer)
print(await viewbox.ask_async("vqa", film, "?", lambda messages: '{"answer": "no"}'))
session.close()
""",
)


def test_a_conversation_in_a_notebook_shows_pictures_boxes_and_answers(monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    folder = str(Path(viewbox.__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    kernel = {"kernelspec": {"name": "python3", "display_name": sys.executable, "language": "python"}}
    book = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    nbclient.NotebookClient(book, timeout=120).execute()
    shown = [cell.outputs[-1].get("data", {}).get("text/html", "") for cell in book.cells[:3]]
    assert ["Left or right?" in page for page in shown] == [True, False, False]
    assert ("an effusion" in shown[1], "width:40.00%" in shown[1], "or a scar" in shown[2]) == (True, True, True)
    assert all("data:image/png" in page for page in shown)
    assert "{'answer': 'yes'}\nno" in book.cells[3].outputs[0]["text"]
