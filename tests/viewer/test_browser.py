"""The page in a real browser: what it shows, where boxes lie, its keys, and that a hostile episode runs nothing.

One file, so that one browser is started: no other event loop can run in its thread while it is open.
"""

import io
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlencode

import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image

from tests.support.browser import wait_until
from tests.support.saved_episodes import plays, written
from tests.viewer.test_marks_on_pixels import BODY, STACK, Look
from tests.viewer.test_sources import KEY, serving
from viewbox import ConfigError, EpisodeWriter, ImageRef, ScriptedPolicy, load
from viewbox.core.messages import write_call
from viewbox.envs.digits import Digits
from viewbox.images.shown import ShownView
from viewbox.records import Episode, EpisodeTokens, RunConfig, Scores, Task, ToolCall, ToolResult, Turn
from viewbox.rollouts.scoring.compare import compare_runs
from viewbox.rollouts.scoring.filters import expand_field, parse_filter
from viewbox.utils.conditions import parse_condition
from viewbox.viewer.page import build_data
from viewbox.viewer.report import write_report
from viewbox.viewer.sources import EpisodeIndex, find_sets, read_all
from viewbox.viewer.unplayed import build_unplayed


def report(tmp_path, *runs):
    sets = find_sets(runs)
    read_all(sets)
    write_report(sets, tmp_path / "report.html")
    return f"file://{tmp_path}/report.html"


def make(number, total=None, task=None, **changes):
    task = task or Task(f"t{number // 4}", reference={"label": 1})
    scores = Scores(number / 10 if total is None else total, components={"label": 1.0})
    turns = (Turn("user", "Where?"), Turn("assistant", "<think>Hm.</think>There."))
    fields = {"answer": {"label": number}, "scores": scores, "info": {"step": number // 4, "sample": number % 4}}
    return Episode(task, **{"turns": turns, **fields, **changes})


def open_page(page, address, part=""):
    page.goto("about:blank")
    page.goto(address + part)
    page.wait_for_selector("h1")


def open_report(page, tmp_path, *episodes, part=""):
    """The page of one run."""
    open_page(page, report(tmp_path, written(tmp_path / "run", *episodes)), part)


@contextmanager
def shown(tmp_path, served, *runs):
    """The address of runs, of a file or a server."""
    if served:
        with serving(*runs) as port:
            yield f"http://127.0.0.1:{port}/{KEY}/"
    else:
        yield report(tmp_path, *runs)


def wait_for_alert(page, words):
    wait_until(page, f"document.querySelector('[role=alert]')?.innerText?.includes('{words}')")


def wait_for_rows(page, count):
    wait_until(page, f"document.querySelector('.pager')?.innerText?.startsWith('{count} of')")


def list_lines(page):
    return [text.removeprefix("#") for text in page.locator("table.episodes tbody th").all_inner_texts()]


def beside(work, *arguments):
    """What work gives that is done in another thread: this one has the event loop of the browser."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *arguments).result()


@pytest.fixture(scope="module", autouse=True)
def digits(tmp_path_factory):
    """A report of real episodes."""
    folder = tmp_path_factory.mktemp("digits")
    run = written(folder / "run" / "episodes", *beside(plays, Digits(canvas=160, max_turns=6)))
    return report(folder, run.parent)


# ---------------------------------------------------------------------- the table
def test_a_slow_filter_says_that_it_is_searching_and_an_error_leaves_no_rows(page, tmp_path, monkeypatch):
    select, go = EpisodeIndex.select, threading.Event()
    monkeypatch.setattr(EpisodeIndex, "select", lambda self, where: (go.wait(20), select(self, where))[1])
    errors = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    with serving(written(tmp_path / "run", *(make(n) for n in range(6)))) as port:
        open_page(page, f"http://127.0.0.1:{port}/{KEY}/")
        wait_for_rows(page, 6)
        assert errors == []  # not even for the icon
        page.fill("#where", "turns~nothere")
        wait_until(page, "document.querySelector('.pager').innerText.startsWith('searching')")
        assert list_lines(page) == []
        go.set()
        wait_for_rows(page, 0)
        page.fill("#where", "reward>0.4")
        wait_for_rows(page, 1)
        page.fill("#where", "reward>=0.5 or tool=zoom")
        wait_for_alert(page, "numbers")
        assert list_lines(page) == []


def test_curves_are_means_over_tasks_and_figures_are_rounded_as_on_the_command_line(page, tmp_path):
    given = [("a", 0.0, 1), ("a", 0.0, 1), ("a", 0.0, 1), ("b", 1.0, 1), ("a", 1.0, 2)]
    made = [make(0, total, Task(task), info={"step": step}) for task, total, step in given]
    open_report(page, tmp_path, *made, replace(made[3], end_reason="error"))
    curves = page.evaluate("listCurves(data.tables.get(0), null).map(one => one[2])")
    assert curves[0]["reward"] == [0.5, 1.0]  # a task counts once; 0.25 of the episodes
    values = [n / 16 for n in range(-16, 17)] + [0.0005, 1 / 3, 2.5, 0.9995, 1e-9]
    assert page.evaluate("values => values.map(formatFixed)", values) == [f"{value:.3f}" for value in values]


def test_the_table_is_sorted_searched_filtered_and_paged(page, tmp_path):
    open_report(page, tmp_path, *(make(n) for n in range(120)))
    assert list_lines(page) == [str(n) for n in range(1, 51)]
    page.get_by_role("button", name="next").click()
    assert list_lines(page)[0] == "51"
    page.get_by_role("button", name="reward", exact=True).click()
    assert list_lines(page)[:3] == ["120", "119", "118"]
    page.fill("#where", "reward>=1 and reward<1.35 and sample=1|2")
    wait_for_rows(page, 2)
    assert list_lines(page) == ["14", "11"]
    page.fill("#where", "rewrd>1")
    wait_for_alert(page, "rewrd")
    page.fill("#where", "")
    wait_for_rows(page, 120)
    page.fill("#search", "t3")
    wait_for_rows(page, 4)
    assert sorted(list_lines(page)) == ["13", "14", "15", "16"]


CONDITIONS = ["x=1", "x==1.0", "x!=1", "x>0.5", "x>=1", "x<1e3", "x<=-2", "x=a|b", "x='a b'", "x~^a", "x~\\d", "x=null",
              "x!=null", "x=true", "x=", "x>", "x~(", "x", "=3", "x=1_000", "x>0x10", "x=inf", "x>nan", "x.y = 2", "x=a=b"]  # fmt: skip
VALUES = [0, 1, 1.5, -2, 1000, "a", "a b", "A1", "1", "", None, True, False, ["a", "c"], [1, 2], [], "null", "TRUE",
    " a  b ", "7", "7.0", "1.10", "0.50", "12,000", "007", " ", "=b", "a=b"]  # fmt: skip


def test_filters_in_the_page_are_those_of_the_command_line(page, digits):
    open_page(page, digits)
    judge = """([text, values]) => { try { const {field, test} = parseCondition(text); return [field, values.map(test)]; }
        catch { return null; } }"""
    for text in (one.replace("x", "answer", 1) if one[0] == "x" else one for one in CONDITIONS):
        try:
            field, test = parse_condition(text, "", "")
            wanted = [expand_field(field), [test(tuple(one) if isinstance(one, list) else one) for one in VALUES]]
        except ConfigError:
            wanted = None
        assert page.evaluate(judge, [text, [json.dumps(one) for one in VALUES]]) == wanted, text
    for field in ("reward", "reward.box", "task", "task.id", "step", "tool", "answer.reward", "reference.a.b"):
        assert page.evaluate("expandField", field) == expand_field(field)


EXPRESSIONS = (
    "truncated=true", "turns~zoom", r'turns~"success": true', "total_tokens>100", "run_config.seed>0",
    "run_config.temperature~1\\.0", "confidence>0.5", "info.number>5", "answer=null",
    "answer.report='cough and fever'", "answer.report~^x{300}", r"answer.report~\bfièvre\b", "answer.box.0>=0.5",
    "answer.deep.a.b=3", "answer.deep~b.: 3", "answer.lable!=1", "tools_used=zoom", "flags=salvaged", "flags=[]",
    "task.metadata.seed>=7", "turns.0.content~Where"
)  # fmt: skip
GO = "address => { document.querySelector('.pager').replaceChildren(); location.hash = address; }"  # old rows must go


@pytest.mark.parametrize("served", [False, True])
def test_the_filter_gives_the_episodes_of_the_command_line(page, tmp_path, served):
    answers = (None, {"report": "cough and fever", "box": (0.5, 0.1)}, {"report": "x" * 400 + " fièvre"},
               {"deep": {"a": {"b": 3}}, "report": "fever"})  # fmt: skip
    zoom = Turn("assistant", "look", tool_calls=(ToolCall("1", "zoom", {}),), tool_results=(ToolResult("zoom"),))
    run = written(
        tmp_path / "run",
        *(make(n, answer=answers[n % 4], truncated=n % 3 == 0, terminated=n % 3 != 0, info={"number": n,
            "sample": n % 4}, turns=(Turn("user", "Where?"), *([zoom] if n % 2 else [])),
            flags={"salvaged"} if n % 5 == 0 else set(), run_config=RunConfig(seed=n // 6, temperature=1.0))
            for n in range(12))
    )  # fmt: skip
    reader = load(run)
    with shown(tmp_path, served, run) as address:
        open_page(page, address, "#/run/0")
        for text in EXPRESSIONS[:: 5 if served else 1]:  # a server asks the filter of the command line itself
            test = parse_filter(text)
            wanted = [str(reader.line) for episode in reader if test(episode)]
            wait_until(page, "document.querySelector('.pager').innerText.includes(' of 12')")
            page.evaluate(GO, "#/run/0?" + urlencode({"where": text, "sort": "line"}))
            wait_until(page, "document.querySelector('.pager')?.innerText?.includes(' of 12')")
            assert (list_lines(page), page.inner_text("[role=alert]")) == (wanted, ""), text
        page.fill("#where", "truncated=true and answer.report~fever")
        wait_for_rows(page, 2)
        page.reload()  # the filter is in the address
        wait_for_rows(page, 2)
        page.fill("#where", "truncatde=true")
        wait_for_alert(page, "truncatde")


# ---------------------------------------------------------------------- an episode
def test_an_episode_shows_its_turns_pictures_and_scores(page, digits):
    open_page(page, digits, "#/run/0/episode/3")
    text = page.inner_text("main")
    assert all(word in text for word in ("reply 1", "result of zoom", "overview", "reference", "answered"))
    assert page.locator("figure.picture img").count() == 2
    loaded = "[...document.querySelectorAll('figure.picture img')].map((one) => one.complete && one.naturalWidth > 0)"
    wait_until(page, f"{loaded}.every(Boolean)")
    assert page.locator("polygon.gold").count() == 2


def test_a_task_that_nobody_has_played_shows_its_box_and_all_that_the_model_reads(page, tmp_path):
    env = Digits(canvas=160)
    task = build_unplayed(env, env.tasks[0], lambda state: {"prompt": "<|im_start|>", "prompt_tokens": 7})
    open_report(page, tmp_path, task, part="#/run/0/episode/1")
    assert page.inner_text("h1").strip() == env.tasks[0].id  # and no reward
    assert page.locator("polygon.gold").count() == 1
    page.get_by_text("what the model reads, 7 tokens").click()
    assert page.locator("details.prompt pre").inner_text() == "<|im_start|>"
    open_page(page, f"file://{tmp_path}/report.html")
    assert "reward" not in page.inner_text("main")
    assert page.inner_text("table.episodes caption") == "Tasks"
    assert page.inner_text(".pager span >> nth=0") == "1 of 1 tasks"


def test_keys_walk_through_the_filtered_episodes(page, tmp_path):
    open_report(page, tmp_path, *(make(n) for n in range(30)))
    page.fill("#where", "reward>2")
    wait_for_rows(page, 9)
    page.locator("table.episodes tbody a").first.click()
    wait_until(page, "location.hash === '#/run/0/episode/22'")
    page.wait_for_selector(".turn")
    for key, line in (("j", 23), ("ArrowRight", 24), ("k", 23)):
        page.keyboard.press(key)
        wait_until(page, f"document.querySelector('.trail').innerText.includes('#{line}')")
    page.keyboard.press("g")
    page.wait_for_selector(".group article")
    assert page.locator(".group article").count() == 4
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    page.wait_for_selector("table.episodes")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


def test_thinking_is_folded_and_tokens_are_colored(page, tmp_path):
    tokens = EpisodeTokens((1, 2), (3, 4, 5), (1, 0, 1), (-0.5, 0.0, -2.0), replies=(1, 1))
    episode = make(0, tokens=tokens, info={"advantage": [1.5, -0.25]})
    scores = Scores(1.0, turns=[0.75, 0.25][: episode.num_turns])
    open_report(page, tmp_path, replace(episode, scores=scores), part="#/run/0/episode/1")
    assert page.locator(".turn.own h3").first.inner_text() == "reply 1: earned 0.750, advantage 1.500"
    assert not page.get_by_text("Hm.").is_visible()
    page.get_by_text("thinking (").click()
    assert page.get_by_text("Hm.").is_visible()
    page.get_by_text("5 tokens, 2 of them sampled").click()
    wait_until(page, "document.querySelectorAll('.token').length === 5")
    assert page.locator(".token.own").count() == 2
    page.locator("aside select").select_option("logprob")
    assert page.locator(".token").nth(4).evaluate("(one) => one.style.background") != ""


# ---------------------------------------------------------------------- boxes on pixels
MARK = (0.25, 0.5, 0.5, 0.75)  # of the original
CHAINS = {  # how the picture shows the original: its corners, clockwise from the upper left of the picture
    "whole": [(0, 0), (1, 0), (1, 1), (0, 1)],
    "zoomed": [(0.2, 0.4), (0.6, 0.4), (0.6, 0.8), (0.2, 0.8)],
    "turned right": [(0, 1), (0, 0), (1, 0), (1, 1)],
    "mirrored": [(1, 0), (0, 0), (0, 1), (1, 1)],
    "mirrored and zoomed": [(0.7, 0.3), (0.1, 0.3), (0.1, 0.9), (0.7, 0.9)],
}


def draw_view(corners, side=60):
    """The picture of an original that is black but for `MARK`, at these corners."""
    (ax, ay), (bx, by), _, (dx, dy) = corners
    v, u = np.mgrid[0:side, 0:side] / side + 0.5 / side
    x, y = ax + u * (bx - ax) + v * (dx - ax), ay + u * (by - ay) + v * (dy - ay)
    inside = (x > MARK[0]) & (x < MARK[2]) & (y > MARK[1]) & (y < MARK[3])
    return (inside * 255).astype(np.uint8)


def shoot(page):
    """The pixels of the first picture, as the browser draws it."""
    shot = page.locator(".frame").first.screenshot()
    return np.asarray(Image.open(io.BytesIO(shot)).convert("RGB")).astype(int)


def check_box(page, most):
    """The box of the reference surrounds the bright pixels of the picture."""
    shown = shoot(page)
    page.get_by_label("reference").uncheck()  # what a line covers counts too
    white = np.argwhere(shoot(page).min(axis=2) > 200)
    page.get_by_label("reference").check()
    green = np.argwhere((shown[..., 1] > 140) & (shown[..., 0] < 110) & (shown[..., 2] < 130))
    half = page.evaluate("parseFloat(getComputedStyle(document.querySelector('polygon.gold')).strokeWidth) / 2")
    assert len(white) > 100
    assert np.abs(green.min(axis=0) + half - white.min(axis=0)).max() <= most
    assert np.abs(green.max(axis=0) - half - white.max(axis=0)).max() <= most


def draw_chain(corners):
    ref = ImageRef.of(draw_view(corners))
    view = ShownView(0, corners=(*corners[0], *corners[2]), turned=corners[0][0] == corners[1][0])
    turns = (Turn("user", "Where?", images=(ref,), views=(view,)), Turn("assistant", "{}"))
    return Episode(Task("t", images=(ref,), reference={"bbox": MARK}), turns=turns)


def test_boxes_lie_on_the_pixels_that_they_are_about(page, tmp_path):
    page.emulate_media(color_scheme="dark")  # so that all that is white is the mark
    open_page(page, address := report(tmp_path, written(tmp_path / "run", *map(draw_chain, CHAINS.values()))))
    for line in range(1, len(CHAINS) + 1):
        page.goto(f"{address}#/run/0/episode/{line}")
        wait_until(page, f"document.querySelector('.trail').innerText.includes('#{line} ')")
        for scale in ("4", "0"):
            page.locator(".controls select").select_option(scale)
            wait_until(page, "document.querySelector('figure.picture img').naturalWidth > 0")
            check_box(page, most=2.5)  # half a pixel of the picture, rounded


CALLS = (
    ("select_slice", {"plane": "coronal", "index": 15}), ("zoom", {"factor": 1.5, "center": [0.5, 0.6]}),
    ("select_slice", {"plane": "sagittal", "index": 32}), ("flip_horizontal", {}),
    ("window_level", {"center": 100, "width": 150}),
    ("select_slice", {"plane": "axial", "index": BODY[1]}),  # the first slice above the bright voxels
    ("select_slice", {"plane": "axial", "index": BODY[1] - 1})
)  # fmt: skip
NAMES = ("axial 6 of 20", "image_2", "coronal 15 of 40", "coronal 15 of 40", "sagittal 32 of 60", "sagittal 32 of 60",
         "sagittal 32 of 60", "axial 9 of 20", "axial 8 of 20")  # fmt: skip
# the other image of the task, the picture without the mark, the one with a window (a new slice drops it)
OTHER, EMPTY, WINDOWED = 1, 7, 6


@pytest.fixture(scope="module", autouse=True)
def volume(tmp_path_factory):
    """A report of an episode that looks at slices of a volume."""
    env = Look(tools=("select_slice", "zoom", "flip_horizontal", "window_level"))
    episode = beside(env.play, STACK, ScriptedPolicy([*(write_call(*one) for one in CALLS), "{}"]))
    folder = tmp_path_factory.mktemp("volume")
    return report(folder, written(folder / "run", episode))


def test_the_box_is_on_the_slices_of_a_volume_that_it_covers_which_are_named_as_is_the_window(page, volume):
    open_page(page, volume, "#/run/0/episode/1")
    boxes = [picture.locator("polygon.gold").count() for picture in page.locator("figure.picture").all()]
    assert boxes == [number not in (OTHER, EMPTY) for number in range(len(NAMES))]
    captions = page.locator("figure.picture figcaption").all_inner_texts()
    assert [name in caption for name, caption in zip(NAMES, captions, strict=True)] == [True] * len(NAMES)
    window = "window center 100, width 150"
    assert [window in caption for caption in captions] == [n == WINDOWED for n in range(len(NAMES))]


# ---------------------------------------------------------------------- a group, and two sets compared
def say(*replies):
    return (Turn("user", "Where?"), *(Turn("assistant", reply) for reply in replies))


@pytest.fixture
def show(page, tmp_path):
    """Opens the page of a group of episodes with these turns."""
    numbers = itertools.count()

    def show(*episodes):
        made = (make(number, turns=turns) for number, turns in enumerate(episodes))
        run = written(tmp_path / f"run{next(numbers)}", *made)
        open_page(page, report(tmp_path, run), "#/run/0/group/1")
        return page.inner_text("main")

    return show


def list_texts(page, selector):
    """The texts of these elements in each column."""
    return [column.locator(selector).all_text_contents() for column in page.locator(".group article").all()]


def test_the_first_reply_that_differs_is_marked_and_equal_ones_are_folded(page, show):
    text = show(say("a", "b", "It is left.", "x"), say("a", "b", "It is right, I think.", "x"))
    assert "The first 2 replies are the same; they part at reply 3." in text
    assert list_texts(page, "details.common > summary") == [["replies 1 to 2: the same in all"]] * 2
    assert list_texts(page, "details.common pre") == [["a", "b"]] * 2
    assert not page.locator("details.common pre").first.is_visible()
    assert list_texts(page, "span.common") == [["It is "]] * 2
    assert list_texts(page, "mark") == [["left."], ["right, I think."]]


def act(thought, factor):
    call = ToolCall(id=f"c{factor}", name="zoom", arguments={"factor": factor})
    return Turn("user", "Where?"), Turn("assistant", f"<think>{thought}</think>", tool_calls=(call,))


def test_what_differs_in_replies_thinking_and_calls_is_marked(page, show):
    for episodes, marks in [
        ([say("There"), say("There."), say()], [["There"], ["There."], []]),  # without a reply nothing is common
        ([say("There"), say("There.")], [[], ["."]]), ([act("Hm.", 2), act("Hm.", 4)], [["2}"], ["4}"]]),
        ([say("\U0001f600"), say("\U0001f601")], [["\U0001f600"], ["\U0001f601"]]),  # their first halves are equal
        ([act("Hm, left", 2), act("Hm, right", 2)], [[side, 'zoom {"factor":2}'] for side in ("left", "right")]),
    ]:  # fmt: skip
        show(*episodes)
        assert list_texts(page, "mark") == marks
    assert page.get_by_text("right").is_visible()  # such thinking is open
    assert "All replies are the same." in show(say("a", "b"), say("a", "b"))
    assert page.locator("mark, details.common").count() == 0


def test_results_that_differ_after_equal_replies_are_not_folded(page, show):
    def roll(text, reply):
        call, result = ToolCall(id="c", name="roll", arguments={}), ToolResult("roll", text, call_id="c")
        turns = Turn("assistant", "", tool_calls=(call,)), Turn("tool_result", text, tool_results=(result,))
        return Turn("user", "Roll."), *turns, Turn("assistant", reply)

    show(roll("six", "6"), roll("one", "1"))
    assert list_texts(page, "details.common > summary") == [["reply 1: the same in all"]] * 2
    assert page.get_by_text("six").first.is_visible()


@pytest.fixture(scope="module", autouse=True)
def looked(tmp_path_factory):
    """A report of two runs of one task: never looked and wrong; looked twice and right."""
    env, folder = Digits(max_turns=4), tmp_path_factory.mktemp("looked")
    task = env.tasks[0]
    elsewhere = write_call("zoom", {"factor": 2, "center": [200, 200]})
    first = [json.dumps({**json.loads(env.write_answer(task)), "label": "nine"})]
    second = [elsewhere, write_call("zoom", {"factor": 0.5}), *env.oracle(task), env.write_answer(task)]
    made = [beside(env.play, task, ScriptedPolicy(replies)) for replies in (first, second)]
    return report(folder, *(written(folder / name, episode) for name, episode in zip("ab", made, strict=True)))


def test_the_page_shows_where_it_looked_why_it_was_wrong_and_what_moved(page, looked):
    open_page(page, looked, "#/run/1/episode/1")
    aside = page.inner_text("aside")
    assert "seen, right, and the target was shown well" in aside
    looks = page.locator("figure.picture").first.locator(".mark.view:not(.path) title").all_text_contents()
    times = ["after reply 1, 2.000 times as large", "after reply 3, 4.000 times as large"]
    assert [text.partition(", ")[2] for text in looks] == times
    assert page.locator("figure.picture").first.locator(".mark.view.path").count() == 1
    open_page(page, looked, "#/run/0")
    page.get_by_role("button", name="search 1").click()
    wait_for_rows(page, 1)
    assert page.locator("#where").input_value() == "verdict=search"
    open_page(page, looked, "#/compare/0/1")
    assert read_table(page, "Tasks by verdict") == [["search", "1"]]
    assert len(read_table(page, "From search to seen (1)")) == 1


@pytest.fixture
def runs(tmp_path):
    """Eight tasks of two kinds: of the first four the second wins three and loses one; the others tie."""

    def save(name, totals):
        tasks = [Task(f"t{n}", reference={"kind": "ab"[n // 4], "label": 1}) for n in range(8)]
        return written(tmp_path / name, *(make(n, totals[n], tasks[n], info={"sample": 0}) for n in range(8)))

    return save("first", [0, 0, 0, 1, 1, 1, 0, 0]), save("second", [1, 1, 0.2, 0, 1, 1, 0, 0])


def read_table(page, caption):
    rows = page.locator("table").filter(has_text=caption).locator("tbody tr").all()
    return [row.locator("th, td").all_inner_texts() for row in rows]


def test_every_task_is_a_part_of_the_plot_and_leads_to_its_episode(page, runs, tmp_path):
    open_page(page, report(tmp_path, *runs), "#/compare/0/1")
    assert page.locator(".outcomes").first.inner_text().split("\n") == ["3 wins", "4 ties", "1 loss"]
    assert compare_runs(*runs).explain() in page.inner_text("main")
    titles = page.locator(".pairs circle title").all_text_contents()
    assert sorted(titles) == [
        "2 tasks at about 0.000 and 0.000, such as t6", "2 tasks at about 0.000 and 1.000, such as t0",
        "2 tasks at about 1.000 and 1.000, such as t4", "t2: 0.000 and 0.200", "t3: 1.000 and 0.000",
    ]  # fmt: skip
    place = "(one) => [one.cx.baseVal.value, one.cy.baseVal.value]"
    lost = [216, 192]  # the first solves it, the second does not
    assert page.locator(".pairs circle.losses").evaluate(place) == lost
    page.locator(".pairs a").filter(has_text="t2").click()
    page.wait_for_selector(".turn")
    assert page.evaluate("location.hash") == "#/run/1/episode/3"


@pytest.mark.parametrize("served", [False, True])
def test_tasks_are_grouped_by_a_field_as_on_the_command_line(page, runs, tmp_path, served):
    groups = compare_runs(*runs, by="reference.kind").groups
    means = {name: [f"{part.mean:.3f}" for part in (one.a, one.b, one.difference)] for name, one in groups.items()}
    wins = {name: [str(count) for count in (one.wins, one.ties, one.losses)] for name, one in groups.items()}
    wanted = [[name, "4 (< 20)", *means[name], *wins[name]] for name in groups]
    with shown(tmp_path, served, *runs) as address:
        open_page(page, address, "#/compare/0/1")
        assert "reference.label" not in page.locator("#by").inner_text()  # it has one value
        page.locator("#by").select_option(label="reference.kind")
        assert read_table(page, "Reward by reference.kind") == wanted
        open_page(page, address, page.evaluate("location.hash"))  # the address can be sent
        assert read_table(page, "Reward by reference.kind") == wanted
        open_page(page, address, "#/compare/0/1/%E0%A4%A")
        wait_until(page, "document.getElementById('by').value === ''")


def test_a_task_with_several_episodes_is_in_one_table_and_leads_to_its_group(page, tmp_path):
    def save(name, totals):
        made = (make(n, total, Task("t"), info={"sample": n}) for n, total in enumerate(totals))
        return written(tmp_path / name, *made)

    open_page(page, report(tmp_path, save("first", [0, 1, 0, 0]), save("second", [1, 0, 1, 1])), "#/compare/0/1")
    assert page.locator(".outcomes").first.inner_text() == "1 win"
    row = ["t", "#1 0.250 (mean of 4)", "#1 0.750 (mean of 4)"]
    assert read_table(page, "Tasks that only the second solves") == [row]
    assert page.locator("table").filter(has_text="Tasks that only the first solves").count() == 0
    page.locator("table").filter(has_text="Tasks that only the second solves").locator("a").last.click()
    page.wait_for_selector(".group")
    assert page.evaluate("location.hash") == "#/run/1/group/1"


# ---------------------------------------------------------------------- a run in progress, and what every page has
def test_a_run_in_progress_is_followed(page, tmp_path):
    written(tmp_path / "run", make(0))
    with serving(tmp_path / "run") as port:
        open_page(page, f"http://127.0.0.1:{port}/{KEY}/")
        assert list_lines(page) == ["1"]
        with EpisodeWriter(tmp_path / "run") as writer:
            writer.append(make(1))
        wait_until(page, "document.querySelectorAll('table.episodes tbody tr').length === 2")
        assert "2 episodes" in page.inner_text(".plots")
        page.locator("table.episodes tbody a").nth(1).click()
        page.wait_for_selector(".turn")


def test_it_is_light_or_dark_and_what_a_screen_reader_needs_is_there(page, digits):
    open_page(page, digits)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="light or dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    open_page(page, digits, "#/run/0/episode/3")
    assert page.locator("img:not([alt])").count() == 0
    assert page.locator("header, main, nav, aside").count() >= 4
    assert page.locator("html[lang]").count() == 1
    assert page.evaluate("document.activeElement.id") == "main"
    open_page(page, digits)
    assert page.locator("table.episodes th:not([scope])").count() == 0


# ---------------------------------------------------------------------- hostile episodes
# ruff: noqa: E501 (a hostile text in one piece)
BAD = [
    "<script>window.hacked=1</script>", "</script><script>window.hacked=1</script>", "<img src=x onerror=window.hacked=1>",
    "<svg onload=window.hacked=1>", "<svg><script>window.hacked=1</script></svg>", "javascript:window.hacked=1",
    "<a href='javascript:window.hacked=1'>x</a>", "<iframe src='javascript:parent.hacked=1'></iframe>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>", "data:text/html,<script>window.hacked=1</script>",
    "<style>body{display:none}</style>", "<link rel=stylesheet href=http://198.51.100.1/x.css>", "<base href=http://198.51.100.1/>",
    "<meta http-equiv=refresh content='0;url=http://198.51.100.1/'>", "<object data=http://198.51.100.1/x></object>",
    "\" onmouseover=\"window.hacked=1", "' onfocus='window.hacked=1' autofocus='", "`${window.hacked=1}`", "{{constructor.constructor('window.hacked=1')()}}",
    "<!--", "-->", "]]>", "<![CDATA[", "&lt;script&gt;", "%3Cscript%3E", "\u202eevil\u202c", "\u2066\u2067", "\u0000\u0001\u001b[31m", "\ud83d",
    "<form action=http://198.51.100.1/><input name=x></form>", "<details open ontoggle=window.hacked=1>", "<video src=http://198.51.100.1/x onerror=window.hacked=1>",
    "__proto__", "constructor", "<input autofocus onfocus=window.hacked=1>", "<math><mi xlink:href='javascript:window.hacked=1'>x</mi></math>",
    "<template><script>window.hacked=1</script></template>", "<noscript><img src=x onerror=window.hacked=1></noscript>", "\u2028window.hacked=1\u2029", "x" * 10_000_000,
]  # fmt: skip


def plant(text, number):
    """An episode with the text in every place that takes any."""
    short = text[:3000]
    picture = ImageRef.of(np.full((8, 8), number, np.uint8))
    call = ToolCall(id=short, name=short, arguments={short: short})
    error = short if number % 2 else None
    result = ToolResult(short, short, call_id=short, image=picture, arguments={short: short}, error=error)
    turns = (Turn("user", text, images=(picture,)), Turn("assistant", f"<think>{text}</think>{text}", tool_calls=(call,
        )), Turn("tool_result", text, tool_results=(result,)), Turn("assistant", text))  # fmt: skip
    named = {short: short, "label": short}
    return Episode(
        Task(short[:200] or "x", prompt={"question": text}, reference=named, metadata=named), turns=turns, answer=named,
        scores=Scores(0.5, components={short: 0.5}, faults={short: short}), environment=short, system_prompt=text,
        info={"step": number, short: short}
    )  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    with EpisodeWriter(folder / "run") as writer:
        for number, text in enumerate(BAD):
            writer.append_or_error(plant(text, number))
    for number, path in enumerate(sorted((folder / "run" / "images").rglob("*.png"))):
        if number % 3 == 0:
            path.write_bytes([b"junk", b"<svg onload='window.hacked=1'/>", b""][number % 9 // 3])
    return folder


READY = """document.querySelector('.trail')?.innerText?.includes('#LINE ')
    || document.querySelector('h1').innerText === 'Nothing to show'"""
ELEMENTS = "iframe, object, embed, form, base, main script, main style, main link, main svg script"
CLEAN = """[...document.querySelectorAll('main *')].every((one) => [...one.attributes].every((a) => !a.name.startsWith('on')))
    && [...document.querySelectorAll('main a')].every((one) => one.getAttribute('href').startsWith('#/'))"""


@pytest.mark.parametrize("served", [False, True])
def test_hostile_episodes_run_nothing(page, hostile, served):
    with shown(hostile, served, hostile / "run") as address:
        open_page(page, address)
        for line in range(1, len(BAD) + 1, 3 if served else 1):  # a server sends the same pages
            page.goto(f"{address}#/run/0/episode/{line}")
            wait_until(page, READY.replace("LINE", str(line)))
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            assert page.locator(ELEMENTS).count() == 0
            assert page.evaluate(CLEAN)


def test_a_hostile_run_has_a_name_too(page, tmp_path):
    name = "<img src=x onerror=window.hacked=1>"
    open_page(page, report(tmp_path, written(tmp_path / name, make(0)), written(tmp_path / "b", make(0))))
    assert name in page.inner_text("h1")


def test_the_policy_stops_what_slips_through(page, digits):
    """If an element with code did get in, the browser would not run it, and would say so."""
    open_page(page, digits)
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"window.hacked=1\">')")
    wait_until(page, "window.violations.length > 0")
    assert page.evaluate("window.hacked") is None
    page.evaluate("window.violations = []")


def test_the_data_of_a_page_cannot_end_its_block():
    for text in (*BAD[:-1], "</SCRIPT>", "<!--<script>"):
        data = text.encode("utf-8", "replace").decode()
        inner = build_data("x", data).removeprefix('<script type="application/json" id="x">')
        inner = inner.removesuffix("</script>\n")
        assert ("<" in inner, json.loads(inner)) == (False, data)
