"""`viewbox snapshot`: recording that can be stopped, and what show and check say."""

import asyncio
import dataclasses
import io
import re

import pytest
from PIL import Image

from tests.support.hostile_snapshot import WORD, edit, write_hostile_snapshot
from tests.support.literature_server import make_source, serve_literature
from tests.support.servers import make_response
from tests.support.snapshots import ARTICLES, FIGURES, draw_png, write_snapshot
from viewbox.cli import snapshot as command
from viewbox.errors import ToolError
from viewbox.tools.search.records import Article, ArticleQuery, ImageQuery
from viewbox.tools.search.snapshot import SnapshotSource


class Shelf:
    """A source that knows a few records, counts what it is asked, and fails when it is told to."""

    def __init__(self):
        self.asked, self.loaded, self.failing = [], [], set()
        self.articles, self.pictures = list(ARTICLES), {found.uid: draw_png(n) for n, found in enumerate(FIGURES)}

    def prepare(self):
        pass

    async def search_articles(self, query):
        self.asked.append((query.words, query.search_type))
        if query.words in self.failing:
            raise ToolError("the service did not answer")
        return [one for one in self.articles if query.words in f"{one.title} {one.abstract}".lower()]

    async def search_images(self, query):
        return [one for one in FIGURES if query.words in one.caption.lower()]

    async def load_image(self, found):
        await asyncio.sleep(0)
        self.loaded.append(found.uid)
        return self.pictures[found.uid]


@pytest.fixture
def shelf(monkeypatch):
    found = Shelf()
    monkeypatch.setattr(command, "open_live_source", lambda answers: found)
    return found


@pytest.fixture
def out(tmp_path):
    return tmp_path / "recorded.snapshot"


def test_answers_and_pictures_are_recorded_and_found_again(viewbox, shelf, out):
    status, printed, _ = viewbox("snapshot", "build", "pneumonia", "nodule", "--out", str(out))
    assert (status, printed) == (0, f"{out}: 4 articles, 2 figures\n")
    source = SnapshotSource(out)
    assert {one.pmid for one in source.find_articles(ArticleQuery("pneumonia", limit=9))} == {"13", "14", "15"}
    assert source.read_picture("f3") == draw_png(2)
    about = source.describe().meta
    assert about["made_by"] == "viewbox snapshot build"
    assert about["note"]
    assert about["license"]
    assert not out.with_name(f"{out.name}.part").exists()


def test_queries_may_stand_in_a_file_and_repeated_ones_are_asked_once(viewbox, shelf, out, tmp_path):
    (tmp_path / "queries.txt").write_text("\ufeff# about lungs\npneumonia\n\n  nodule  \npneumonia\n")
    assert viewbox("snapshot", "build", "--queries", str(tmp_path / "queries.txt"), "--out", str(out))[0] == 0
    assert shelf.asked == [("pneumonia", "all"), ("nodule", "all")]


def test_each_search_type_is_asked(viewbox, shelf, out):
    types = ("--search-type", "review", "--search-type", "all")
    assert viewbox("snapshot", "build", "aspirin", *types, "--out", str(out))[0] == 0
    assert shelf.asked == [("aspirin", "all"), ("aspirin", "review")]


def test_a_query_that_failed_writes_nothing(viewbox, shelf, out):
    shelf.failing = {"aspirin"}
    status, printed, told = viewbox("snapshot", "build", "pneumonia", "aspirin", "--out", str(out))
    assert (status, printed) == (1, "")
    assert "failed: aspirin: the service did not answer" in told
    assert f"not written: 1 queries failed; {out}.part keeps what was answered" in told
    assert not list(out.parent.iterdir())


def test_a_recording_that_ended_early_continues_with_what_is_missing(viewbox, out, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    with serve_literature(tmp_path / "other") as (literature, setup):
        monkeypatch.setattr(command, "open_live_source", lambda answers: make_source(setup, cache_dir=answers))
        arguments = ("snapshot", "build", "sign", "nodule", "--images", "2", "--out", str(out))
        literature.openi = [None, make_response(400, "no")]
        assert viewbox(*arguments)[0] == 1
        assert not out.exists()
        before = literature.count()
        assert viewbox(*arguments)[0] == 0
        assert literature.count() - before == {"openi": 1}
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other", out.name]


def test_with_partial_the_file_is_written_without_the_queries_that_failed(viewbox, shelf, out):
    shelf.failing = {"aspirin"}
    status, printed, told = viewbox("snapshot", "build", "aspirin", "nodule", "--out", str(out), "--partial")
    assert (status, printed) == (0, f"{out}: 1 articles, 2 figures\n")
    assert "failed: aspirin" in told


def test_a_record_or_picture_that_cannot_be_used_costs_itself_and_is_told(viewbox, shelf, out):
    shelf.articles.append(Article("[/data]", "More pneumonia and nodules"))
    shelf.pictures["f1"] = draw_png()[:40]
    shelf.pictures["f3"] = b"GIF89a"
    status, printed, told = viewbox("snapshot", "build", "nodule", "pneumonia", "--out", str(out))
    assert (status, printed) == (1, f"{out}: 4 articles, 0 figures\n")
    assert "left out: article [/data]: Expected `str` matching regex" in told
    assert "left out: figure f1: the picture cannot be decoded" in told
    assert "left out: figure f3: the picture is a picture of another format" in told


WRONG_ARGUMENTS = [
    ((), "no query; allowed: words in quotes, or --queries FILE"),
    (("--queries", "/missing.txt"), "--queries /missing.txt: No such file"),
    (("a", "--search-type", "reviews"), "unknown search type 'reviews'; allowed: all, .* (did you mean 'review'?)"),
]


def test_wrong_arguments_end_with_status_2(viewbox, shelf, out):
    for arguments, message in WRONG_ARGUMENTS:
        status, _, told = viewbox("snapshot", "build", *arguments, "--out", str(out))
        assert status == 2
        assert re.search(message.replace("(", r"\(").replace("?)", r"\?\)"), told)
        assert not list(out.parent.iterdir())


def test_what_the_live_services_answer_is_recorded(viewbox, out, tmp_path, monkeypatch):
    """With the real client at a server on this machine that speaks E-utilities and Open-i."""
    with serve_literature(tmp_path) as (literature, setup):
        live = make_source(setup)
        monkeypatch.setattr(command, "open_live_source", lambda answers: live)
        status, printed, told = viewbox("snapshot", "build", "sign", "--images", "3", "--out", str(out))
        assert (status, printed, told) == (0, f"{out}: 2 articles, 3 figures\n", "")
        asked = literature.count()
        articles = asyncio.run(live.search_articles(ArticleQuery("sign", limit=20)))
        figures = asyncio.run(live.search_images(ImageQuery("sign", limit=3)))
        pictures = [asyncio.run(live.load_image(found)) for found in figures]
        assert literature.count() == asked  # they are kept
    source = SnapshotSource(out)
    assert set(source.find_articles(ArticleQuery("sign"))) == set(articles)
    recorded = {found.uid: found for found in source.find_images(ImageQuery(figures[0].caption, limit=9))}
    assert recorded == {found.uid: dataclasses.replace(found, image_url="") for found in figures}
    assert [source.read_picture(found.uid) for found in figures] == pictures


def test_figures_of_a_modality_are_asked_for_first_and_keep_it(viewbox, out, tmp_path, monkeypatch):
    with serve_literature(tmp_path) as (literature, setup):
        monkeypatch.setattr(command, "open_live_source", lambda answers: make_source(setup))
        arguments = ("--images", "2", "--modality", "ct", "--modality", "mri", "--out", str(out))
        assert viewbox("snapshot", "build", "sign", *arguments)[0] == 0
        assert [query.get("it") for query in literature.find_queries("openi")] == ["c", "m", None]
    source = SnapshotSource(out)
    assert len(source.find_images(ImageQuery("", "computed tomography"))) == 2
    assert source.find_images(ImageQuery("", "ultrasound")) == []


# ---------------------------------------------------------------------- show and check


def test_show_says_what_a_snapshot_holds(viewbox, tmp_path):
    status, printed, _ = viewbox("snapshot", "show", str(write_snapshot(tmp_path / "s")))
    assert status == 0
    for line in ("note       written for tests", "articles   5", "figures    3", "years      1999-2023"):
        assert line in printed.splitlines()


def test_show_prints_what_a_model_reads(viewbox, tmp_path):
    status, printed, _ = viewbox("snapshot", "show", str(write_snapshot(tmp_path / "s")), "lung", "nodules")
    assert status == 0
    assert "[1] PMID 11, 2023" in printed
    assert "A nodule in the right upper lobe" in printed


def test_hostile_texts_do_not_reach_the_terminal(viewbox, tmp_path):
    path = write_hostile_snapshot(tmp_path / "hostile")
    for arguments in (("show", str(path), WORD, "--limit", "100"), ("check", str(path))):
        printed = "".join(viewbox("snapshot", *arguments)[1:])
        assert not {"\x1b", "\x07", "\u202e", "\u200b"} & set(printed)


def test_a_good_snapshot_passes_the_check(viewbox, tmp_path):
    status, printed, _ = viewbox("snapshot", "check", str(write_snapshot(tmp_path / "s")))
    assert status == 0
    rows = {line.split()[0]: line.split()[1:] for line in printed.splitlines()}
    assert rows["articles"] == rows["article_index"] == ["5", "0"]
    assert rows["pictures"] == ["3", "0"]


def make_bomb():
    """A PNG of 12,000 x 12,000 pixels in a few kilobytes."""
    file = io.BytesIO()
    Image.new("1", (12_000, 12_000)).save(file, "PNG")
    return file.getvalue()


FAULTS = {
    "a year": (["UPDATE articles SET year = 'x' WHERE pmid = '12'"],
        "articles: id .*: BadRecord: Expected `int \\| null`, got `str`"),
    "a figure": (["UPDATE figures SET uid = 'a b' WHERE uid = 'f1'"],
        "figures: id .*: BadRecord: Expected `str` matching regex .* - at `\\$.uid`"),
    "a picture that is missing": (["DELETE FROM pictures WHERE id = 1"], "pictures: id 1: BadRecord: content is null"),
    "half a picture": ([("UPDATE pictures SET content = ?", (draw_png()[:50],))], "pictures: .*cannot be decoded"),
    "a bomb": ([("UPDATE pictures SET content = ?", (make_bomb(),))], "pictures: .*more than .* pixels"),
    "no license": (["DELETE FROM meta WHERE key = 'license'"], "about: license: missing"),
    "a note of spaces": (["UPDATE meta SET value = '  ' WHERE key = 'note'"], "about: note: missing"),
    "a wrong count": (["UPDATE meta SET value = '7' WHERE key = 'articles'"], "about: articles: '7'; the file holds 5"),
    "a date": (["UPDATE meta SET value = 'May' WHERE key = 'recorded'"], "about: recorded: 'May'"),
    "an index without a row": (["DELETE FROM article_index_docsize WHERE id = 2"],
        "article_index: articles has id 2, which article_index_docsize lacks"),
    "bytes for text": (["UPDATE articles SET title = x'00'"],
        "articles: id 1: BadRecord: Expected `str`, got `bytes` - at"),
}  # fmt: skip


def test_check_names_what_is_wrong_and_ends_with_status_1(viewbox, tmp_path):
    for name, (statements, message) in FAULTS.items():
        path = edit(write_snapshot(tmp_path / name), *statements)
        status, printed, _ = viewbox("snapshot", "check", str(path))
        assert status == 1, name
        assert re.search(message, printed), name


def test_check_of_what_is_no_snapshot_ends_with_status_2(viewbox, tmp_path):
    (tmp_path / "text").write_text("hello")
    status, _, told = viewbox("snapshot", "check", str(tmp_path / "text"))
    assert status == 2
    assert "is not a snapshot" in told
