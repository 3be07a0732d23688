"""examples/snapshot.py: recording that can be stopped, and what a snapshot holds."""

import asyncio
import dataclasses
import json
from pathlib import Path

import pytest

from examples import snapshot as script
from tests.support.hostile_snapshot import WORD, write_hostile_snapshot
from tests.support.literature_server import make_source, serve_literature
from tests.support.servers import make_response
from tests.support.snapshots import ARTICLES, FIGURES, draw_png, write_snapshot
from tests.support.tables import each
from viewbox.errors import ToolError
from viewbox.tools.search.records import Article, ArticleQuery, ImageQuery
from viewbox.tools.search.snapshot import SnapshotSource
from viewbox.utils.exit_status import guard


class Shelf:
    """A source that knows a few records, counts what it is asked, and fails when it is told to."""

    def __init__(self):
        self.asked, self.failing = [], set()
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
        return self.pictures[found.uid]


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def record(capsys, shelf):
    """The script, run with a source: its status, what it printed, and what it told."""

    def run(*arguments, source=lambda answers: shelf):
        try:
            status = guard(lambda: script.main(arguments, source))
        except SystemExit as end:  # of argparse
            status = end.code
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def out(tmp_path):
    return tmp_path / "recorded.snapshot"


def test_answers_and_pictures_are_recorded_and_found_again(record, shelf, out):
    status, printed, _ = record("pneumonia", "nodule", "--out", str(out))
    assert (status, printed) == (0, f"{out}: 4 articles, 2 figures\n")
    source = SnapshotSource(out)
    assert {one.pmid for one in source.find_articles(ArticleQuery("pneumonia", limit=9))} == {"13", "14", "15"}
    assert source.read_picture("f3") == draw_png(2)
    about = source.describe()
    assert about["made_by"] == "examples/snapshot.py"
    assert all((about["note"], about["license"]))
    assert not out.with_name(f"{out.name}.part").exists()


def test_queries_may_stand_in_a_file_repeated_ones_are_asked_once_and_each_search_type_is(record, shelf, out, tmp_path):
    (tmp_path / "queries.txt").write_text("\ufeff# about lungs\npneumonia\n\n  nodule  \npneumonia\n")
    assert record("--queries", str(tmp_path / "queries.txt"), "--out", str(out))[0] == 0
    assert shelf.asked == [("pneumonia", "all"), ("nodule", "all")]
    shelf.asked.clear()
    types = ("--search-type", "review", "--search-type", "all")
    assert record("aspirin", *types, "--out", str(tmp_path / "types.snapshot"))[0] == 0
    assert shelf.asked == [("aspirin", "all"), ("aspirin", "review")]


def test_a_query_that_failed_writes_nothing_and_with_partial_a_file_without_it(record, shelf, out):
    shelf.failing = {"aspirin"}
    status, printed, told = record("pneumonia", "aspirin", "--out", str(out))
    assert (status, printed) == (1, "")
    assert "failed: aspirin: the service did not answer" in told
    assert f"not written: 1 queries failed; {out}.part keeps what was answered" in told
    assert not list(out.parent.iterdir())
    status, printed, told = record("aspirin", "nodule", "--out", str(out), "--partial")
    assert (status, printed) == (0, f"{out}: 1 articles, 2 figures\n")
    assert "failed: aspirin" in told


def test_a_recording_that_ended_early_continues_with_what_is_missing(record, out, tmp_path):
    (tmp_path / "other").mkdir()
    with serve_literature(tmp_path / "other") as (literature, setup):
        arguments = ("sign", "nodule", "--images", "2", "--out", str(out))
        given = {"source": lambda answers: make_source(setup, cache_dir=answers)}
        literature.openi = [None, make_response(400, "no")]
        assert record(*arguments, **given)[0] == 1
        assert not out.exists()
        before = literature.count()
        assert record(*arguments, **given)[0] == 0
        assert literature.count() - before == {"openi": 1}
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other", out.name]


def test_a_record_or_picture_that_cannot_be_used_costs_itself_and_is_told(record, shelf, out):
    shelf.articles.append(Article("[/data]", "More pneumonia and nodules"))
    shelf.pictures["f1"] = draw_png()[:40]
    shelf.pictures["f3"] = b"GIF89a"
    status, printed, told = record("nodule", "pneumonia", "--out", str(out))
    assert (status, printed) == (1, f"{out}: 4 articles, 0 figures\n")
    assert "left out: article [/data]: Expected `str` matching regex" in told
    assert "left out: figure f1: the picture cannot be decoded" in told
    assert "left out: figure f3: the picture is a picture of another format" in told


PUBMEDQA = {  # the layout of ori_pqal.json, with words of our own
    "QUESTION": "Do pale marbles roll farther than dark ones?", "LONG_ANSWER": "Color does not matter.",
    "CONTEXTS": ["Marbles differ in color.", "Twelve marbles were rolled."], "LABELS": ["BACKGROUND", "METHODS"],
    "MESHES": ["Marbles", "Color"], "YEAR": "2014",
    **dict.fromkeys(("reasoning_required_pred", "reasoning_free_pred", "final_decision"), "no"),
}  # fmt: skip
WHOLE = f"{PUBMEDQA['QUESTION']}|2014|BACKGROUND: {PUBMEDQA['CONTEXTS'][0]} METHODS: {PUBMEDQA['CONTEXTS'][1]} "
PUBMEDQA_RECORDS = [  # what is changed, or missing (...); what an article holds, or why the record is left out
    ("990000001", {}, WHOLE + "CONCLUSION: Color does not matter."),
    ("990000002", {"YEAR": None, "MESHES": []}, ""),
    ("990000003", {"CONTEXTS": ...}, "it has no CONTEXTS"),
    ("990000004", {"CONTEXTS": "Marbles"}, "CONTEXTS = 'Marbles'; allowed: a list of texts"),
    ("990000005", {"CONTEXTS": ["Marbles."]}, "2 LABELS of 1 CONTEXTS; allowed: one of each"),
    ("990000006", {"final_decision": "perhaps"}, "final_decision = 'perhaps'; allowed: yes, no, maybe"),
    ("990000007", {"YEAR": "soon"}, "invalid literal for int() with base 10: 'soon'"),
    ("990000001", {"QUESTION": "Twice?"}, "an earlier record has its PMID"),
    ("[/data]", {}, "Expected `str` matching regex"),
    ("990000008", {"QUESTION": 7}, "Expected `str`, got `int`"),
]


def test_each_record_of_pubmedqa_is_an_article_or_is_left_out_with_the_reason(record, out, tmp_path):
    written = [
        f'"{pmid}": {json.dumps({key: value for key, value in {**PUBMEDQA, **changes}.items() if value is not ...})}'
        for pmid, changes, _ in PUBMEDQA_RECORDS
    ]
    file = tmp_path / "ori_pqal.json"
    file.write_text("{" + ", ".join(written) + "}")
    status, printed, told = record("--pubmedqa", str(file), "--out", str(out))
    assert (status, printed) == (1, f"{out}: 2 articles\n")
    for line, (pmid, _, says) in zip(told.splitlines(), PUBMEDQA_RECORDS[2:], strict=True):
        assert line.startswith(f"left out: article {pmid}: {says}")
    first, second = sorted(SnapshotSource(out).find_articles(ArticleQuery("marbles")), key=lambda article: article.pmid)
    assert f"{first.title}|{first.year}|{first.abstract}" == PUBMEDQA_RECORDS[0][2]
    assert (first.mesh, first.url) == (("Marbles", "Color"), "https://pubmed.ncbi.nlm.nih.gov/990000001")
    assert (second.pmid, second.year, second.mesh) == ("990000002", None, ())


@each("content, arguments, message", [
    ("", (), "give a query or --queries FILE, and --out FILE"), ("", ("--queries", "/missing.txt"), "No such file"),
    *((content, ("--pubmedqa", "file.json"), "allowed: ori_pqal.json of PubMedQA") for content in ("[1]", "no JSON")),
])  # fmt: skip
def test_wrong_arguments_and_another_file_than_that_of_pubmedqa_end_with_status_2(
    record, out, tmp_path_factory, monkeypatch, content, arguments, message
):
    monkeypatch.chdir(tmp_path_factory.mktemp("files"))
    Path("file.json").write_text(content)
    status, _, told = record(*arguments, "--out", str(out))
    assert status == 2, told
    assert message in told
    assert not list(out.parent.iterdir())


def test_what_the_live_services_answer_is_recorded(record, out, tmp_path):
    """With the real client at a server on this machine that speaks E-utilities and Open-i."""
    with serve_literature(tmp_path) as (literature, setup):
        live = make_source(setup)
        status, printed, told = record("sign", "--images", "3", "--out", str(out), source=lambda answers: live)
        assert (status, printed, told) == (0, f"{out}: 2 articles, 3 figures\n", "1 of 1 queries\n")
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


def test_figures_of_a_modality_are_asked_for_first_and_keep_it(record, out, tmp_path):
    with serve_literature(tmp_path) as (literature, setup):
        arguments = ("--images", "2", "--modality", "ct", "--modality", "mri", "--out", str(out))
        assert record("sign", *arguments, source=lambda answers: make_source(setup))[0] == 0
        assert [query.get("it") for query in literature.find_queries("openi")] == ["c", "m", None]
    source = SnapshotSource(out)
    assert len(source.find_images(ImageQuery("", "computed tomography"))) == 2
    assert source.find_images(ImageQuery("", "ultrasound")) == []


def test_show_says_what_a_snapshot_holds_and_what_a_model_reads(record, tmp_path):
    status, printed, _ = record("--show", str(write_hostile_snapshot(tmp_path / "hostile")), WORD)
    assert status == 0
    assert not {"\x1b", "\x07", "\u202e", "\u200b"} & set(printed)
    printed = record("--show", str(write_snapshot(tmp_path / "s")), "lung nodules")[1]
    for line in ("note       written for tests", "articles   5", "figures    3"):
        assert line in printed.splitlines()
    assert "[1] PMID 11, 2023" in printed
    assert "A nodule in the right upper lobe" in printed
