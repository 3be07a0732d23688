"""The page in a real browser: what it shows, where boxes lie, its keys, and that a hostile episode runs nothing."""

import io
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image

from tests.support.browser import wait_until
from tests.support.saved_episodes import plays, written
from tests.viewer.test_server import KEY, serving
from viewbox.envs.digits import Digits
from viewbox.errors import ConfigError
from viewbox.images.ref import ImageRef
from viewbox.images.shown import ShownView
from viewbox.records import Episode, EpisodeTokens, RunConfig, Scores, Task, ToolCall, ToolResult, Turn
from viewbox.rollouts.scoring.filters import expand_field, parse_filter
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter
from viewbox.utils.conditions import parse_condition
from viewbox.viewer.report import write_report
from viewbox.viewer.sources import EpisodeIndex, find_sets, read_all


def report(tmp_path, *runs):
    sets = find_sets(runs)
    read_all(sets)
    write_report(sets, tmp_path / "report.html")
    return f"file://{tmp_path}/report.html"


def make(number, total=None, **changes):
    scores = Scores(number / 10 if total is None else total, components={"label": 1.0})
    turns = (Turn("user", "Where?"), Turn("assistant", "<think>Hm.</think>There."))
    fields = {"answer": {"label": number}, "scores": scores, "info": {"step": number // 4, "sample": number % 4}}
    return Episode(Task(f"t{number // 4}", reference={"label": 1}), **{"turns": turns, **fields, **changes})


def open_page(page, address, part=""):
    page.goto("about:blank")
    page.goto(address + part)
    page.wait_for_selector("h1")


def wait_for_rows(page, count):
    wait_until(page, f"document.querySelector('.pager')?.innerText?.startsWith('{count} of')")


def list_lines(page):
    return [text.removeprefix("#") for text in page.locator("table.episodes tbody th").all_inner_texts()]


@pytest.fixture(scope="module", autouse=True)
def digits(tmp_path_factory):
    """A report of real episodes, played before the browser is opened."""
    folder = tmp_path_factory.mktemp("digits")
    with ThreadPoolExecutor(1) as pool:  # this thread has the event loop of the browser
        episodes = pool.submit(plays, Digits(canvas=160, max_turns=6)).result()
    run = written(folder / "run" / "episodes", *episodes)
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
        wait_until(page, "document.querySelector('[role=alert]')?.innerText?.includes('numbers')")
        assert list_lines(page) == []


def test_curves_of_saved_episodes_are_means_over_tasks(page, tmp_path):
    given = [("a", 0.0, 1), ("a", 0.0, 1), ("a", 0.0, 1), ("b", 1.0, 1), ("a", 1.0, 2)]
    made = [replace(make(0, total), task=Task(task), info={"step": step}) for task, total, step in given]
    open_page(page, report(tmp_path, written(tmp_path / "run", *made, replace(made[3], end_reason="error"))))
    curves = page.evaluate("listCurves(data.tables.get(0), null).map(one => one[2])")
    assert curves[0]["reward"] == [0.5, 1.0]  # a task counts once; 0.25 of the episodes


def test_the_table_is_sorted_searched_filtered_and_paged(page, tmp_path):
    address = report(tmp_path, written(tmp_path / "run", *(make(n) for n in range(120))))
    open_page(page, address)
    assert list_lines(page) == [str(n) for n in range(1, 51)]
    page.get_by_role("button", name="next").click()
    assert list_lines(page)[0] == "51"
    page.get_by_role("button", name="reward", exact=True).click()
    assert list_lines(page)[:3] == ["120", "119", "118"]
    page.fill("#where", "reward>=1 and reward<1.35 and sample=1|2")
    wait_for_rows(page, 2)
    assert list_lines(page) == ["14", "11"]
    page.fill("#where", "rewrd>1")
    wait_until(page, "document.querySelector('[role=alert]')?.innerText?.includes('rewrd')")
    page.fill("#where", "")
    wait_for_rows(page, 120)
    page.fill("#search", "t3")
    wait_for_rows(page, 4)
    assert sorted(list_lines(page)) == ["13", "14", "15", "16"]


CONDITIONS = ["x=1", "x==1.0", "x!=1", "x>0.5", "x>=1", "x<1e3", "x<=-2", "x=a|b", "x='a b'", "x~^a", "x~\\d", "x=null",
              "x!=null", "x=true", "x=", "x>", "x~(", "x", "=3", "x=1_000", "x>0x10", "x=inf", "x>nan", "x.y = 2", "x=a=b"]  # fmt: skip
VALUES = [
    0, 1, 1.5, -2, 1000, "a", "a b", "A1", "1", "", None, True, False, ["a", "c"], [1, 2], [], "null", "TRUE",
    " a  b ", "7", "7.0", "1.10", "0.50", "12,000", "007", " ", "=b", "a=b",
]  # fmt: skip


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
    "truncated=true", "truncated=false", "turns~zoom", r'turns~"success": true', "total_tokens>100", "total_tokens=null",
    "run_config.seed>0", "run_config.temperature~1\\.0", "confidence>0.5", "confidence=null", "terminated=true",
    "info.number>5", "answer=null", "answer.report='cough and fever'", "answer.report=cough and fever",
    "answer.report~fever$", "answer.report~^x{300}", r"answer.report~\bfièvre\b", "answer.box.0>=0.5",
    "answer.box=0.5", "answer.deep.a.b=3", "answer.deep~b.: 3", "answer.lable!=1", "tools_used=zoom", "tool=zoom|crop",
    "flags=salvaged", "flags=[]", "reward~0\\.0", "task.metadata.seed>=7", "end_reason==answered", "turns.0.content~Where",
)  # fmt: skip


@pytest.mark.parametrize("served", [False, True])
def test_the_filter_gives_the_episodes_of_the_command_line(page, tmp_path, served):
    answers = (None, {"report": "cough and fever", "box": (0.5, 0.1)}, {"report": "x" * 400 + " fièvre"},
               {"deep": {"a": {"b": 3}}, "report": "fever"})  # fmt: skip
    zoom = Turn("assistant", "look", tool_calls=(ToolCall("1", "zoom", {}),), tool_results=(ToolResult("zoom"),))
    run = written(
        tmp_path / "run",
        *(
            make(
                n,
                answer=answers[n % 4],
                truncated=n % 3 == 0,
                terminated=n % 3 != 0,
                turns=(Turn("user", "Where?"), *([zoom] if n % 2 else [])),
                info={"number": n, "sample": n % 4},
                run_config=RunConfig(seed=n // 6, temperature=1.0),
                flags={"salvaged"} if n % 5 == 0 else set(),
            )
            for n in range(12)
        ),
    )
    reader = load(run)

    def check(address):
        for text in EXPRESSIONS:
            test = parse_filter(text)
            wanted = [str(reader.line) for episode in reader if test(episode)]
            open_page(page, address, "#/run/0?" + urlencode({"where": text, "sort": "line"}))
            wait_until(page, "document.querySelector('.pager')?.innerText?.includes(' of 12')")
            assert (list_lines(page), page.inner_text("[role=alert]")) == (wanted, ""), text
        page.fill("#where", "truncated=true and answer.report~fever")
        wait_for_rows(page, 2)
        page.reload()  # the filter is in the address
        wait_for_rows(page, 2)
        page.fill("#where", "truncatde=true")
        wait_until(page, "document.querySelector('[role=alert]')?.innerText?.includes('truncatde')")

    if served:
        with serving(run) as port:
            check(f"http://127.0.0.1:{port}/{KEY}/")
    else:
        check(report(tmp_path, run))


# ---------------------------------------------------------------------- an episode
def test_an_episode_shows_its_turns_pictures_and_scores(page, digits):
    open_page(page, digits, "#/run/0/episode/3")
    text = page.inner_text("main")
    assert all(word in text for word in ("reply 1", "result of zoom", "overview", "reference", "answered"))
    assert page.locator("figure.picture img").count() == 2
    loaded = "[...document.querySelectorAll('figure.picture img')].map((one) => one.complete && one.naturalWidth > 0)"
    wait_until(page, f"{loaded}.every(Boolean)")
    assert page.locator("polygon.gold").count() == 2


def test_keys_walk_through_the_filtered_episodes(page, tmp_path):
    open_page(page, report(tmp_path, written(tmp_path / "run", *(make(n) for n in range(30)))))
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
    tokens = EpisodeTokens((1, 2), (3, 4, 5), (1, 0, 1), (-0.5, 0.0, -2.0))
    run = written(tmp_path / "run", make(0, tokens=tokens, info={"advantage": 1.5}))
    open_page(page, report(tmp_path, run), "#/run/0/episode/1")
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


@pytest.mark.parametrize("scale", ["4", "0"])
@pytest.mark.parametrize("chain", CHAINS)
def test_boxes_lie_on_the_pixels_that_they_are_about(page, tmp_path, chain, scale):
    corners = CHAINS[chain]
    ref = ImageRef.of(draw_view(corners))
    view = ShownView(0, corners=(*corners[0], *corners[2]), turned=corners[0][0] == corners[1][0])
    turns = (Turn("user", "Where?", images=(ref,), views=(view,)), Turn("assistant", "{}"))
    episode = Episode(Task("t", images=(ref,), reference={"bbox": MARK}), turns=turns)
    page.emulate_media(color_scheme="dark")  # so that all that is white is the mark
    open_page(page, report(tmp_path, written(tmp_path / "run", episode)), "#/run/0/episode/1")
    page.locator(".controls select").select_option(scale)
    wait_until(page, "document.querySelector('figure.picture img').naturalWidth > 0")
    green = shoot(page)
    page.get_by_label("reference").uncheck()  # what a line covers counts too
    white = np.argwhere(shoot(page).min(axis=2) > 200)
    green = np.argwhere((green[..., 1] > 140) & (green[..., 0] < 110) & (green[..., 2] < 130))
    assert len(white) > 100
    half = page.evaluate("parseFloat(getComputedStyle(document.querySelector('polygon.gold')).strokeWidth) / 2")
    assert np.abs(green.min(axis=0) + half - white.min(axis=0)).max() <= 2.5  # half a pixel of the picture, rounded
    assert np.abs(green.max(axis=0) - half - white.max(axis=0)).max() <= 2.5


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


def test_light_and_dark(page, digits):
    open_page(page, digits)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="light or dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_what_a_screen_reader_needs_is_there(page, digits):
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
    result = ToolResult(
        short, short, call_id=short, image=picture, arguments={short: short}, error=short if number % 2 else None
    )
    turns = (
        Turn("user", text, images=(picture,)),
        Turn("assistant", f"<think>{text}</think>{text}", tool_calls=(call,)),
        Turn("tool_result", text, tool_results=(result,)),
        Turn("assistant", text),
    )
    named = {short: short, "label": short}
    return Episode(
        Task(short[:200] or "x", prompt={"question": text}, reference=named, metadata=named),
        turns=turns,
        answer=named,
        scores=Scores(0.5, components={short: 0.5}, faults={short: short}),
        environment=short,
        info={"step": number, short: short},
        system_prompt=text,
    )


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


def visit(page, address, count):
    open_page(page, address)
    for line in range(1, count + 1):
        page.goto(f"{address}#/run/0/episode/{line}")
        wait_until(page, READY.replace("LINE", str(line)))
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.locator(ELEMENTS).count() == 0
        assert page.evaluate(CLEAN)


def test_hostile_episodes_run_nothing_in_a_file(page, hostile):
    visit(page, report(hostile, hostile / "run"), len(BAD))


def test_hostile_episodes_run_nothing_when_served(page, hostile):
    with serving(hostile / "run") as port:
        visit(page, f"http://127.0.0.1:{port}/{KEY}/", len(BAD))


def test_a_hostile_run_has_a_name_too(page, tmp_path):
    name = "<img src=x onerror=window.hacked=1>"
    open_page(page, report(tmp_path, written(tmp_path / name, make(0)), written(tmp_path / "b", make(0))))
    assert name in page.inner_text("h1")


def test_the_canary_of_these_tests_sings(chromium, tmp_path):
    (tmp_path / "bad.html").write_text("<body><img src=x onerror='window.hacked=1'></body>")
    opened = chromium.new_page()
    opened.goto(f"file://{tmp_path}/bad.html")
    wait_until(opened, "window.hacked === 1")
    opened.close()


def test_the_policy_stops_what_slips_through(page, digits):
    """If an element with code did get in, the browser would not run it, and would say so."""
    open_page(page, digits)
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"window.hacked=1\">')")
    wait_until(page, "window.violations.length > 0")
    assert page.evaluate("window.hacked") is None
    page.evaluate("window.violations = []")


def test_the_data_of_a_page_cannot_end_its_block():
    from viewbox.viewer.page import build_data

    for text in itertools.chain(BAD[:-1], ["</SCRIPT>", "<!--<script>"]):
        block = build_data("x", text.encode("utf-8", "replace").decode())
        inner = block.removeprefix('<script type="application/json" id="x">').removesuffix("</script>\n")
        assert "<" not in inner
        assert json.loads(inner) == text.encode("utf-8", "replace").decode()
