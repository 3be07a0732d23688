"""What a search in a snapshot finds, and that nothing but the file and the query counts."""

import asyncio
import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.snapshots import ARTICLES, FIGURES, draw_png, write_snapshot
from tests.support.tables import each
from viewbox.errors import ToolError
from viewbox.tools.search.records import Article, ArticleQuery, FoundImage, ImageQuery
from viewbox.tools.search.snapshot import SnapshotSource
from viewbox.tools.search.snapshot.source import MAX_LIMIT

WORDS = ("pneumonia", "lung nodule CT", "chest x-ray in a child", "heart attack", "", "the", "antibiotics effusion")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return SnapshotSource(write_snapshot(tmp_path_factory.mktemp("snapshot") / "a file?x#y.sqlite"))


def find(source, words, **more):
    return [article.pmid for article in source.find_articles(ArticleQuery(words, **more))]


def answer_all(source):
    """The answers to `WORDS` as bytes."""
    found = [list(map(dataclasses.asdict, source.find_articles(ArticleQuery(words)))) for words in WORDS]
    found += [list(map(dataclasses.asdict, source.find_images(ImageQuery(words)))) for words in WORDS]
    return json.dumps(found).encode()


def test_an_article_comes_back_as_it_was_written_and_a_figure_with_its_picture(source):
    found = asyncio.run(source.search_articles(ArticleQuery("pneumonia", limit=10)))
    assert sorted(found, key=lambda one: one.pmid) == list(ARTICLES[2:])
    (found,) = asyncio.run(source.search_images(ImageQuery("thyroid")))
    assert found == FIGURES[2]
    assert asyncio.run(source.load_image(found)) == draw_png(2)


@each("words, found", [
    ("nodule", ["11"]),  # stemmed
    ("CT", ["11"]),  # a synonym of the words in the record
    ("heart attacks", ["12"]), ("MYOCARDIAL INFARCTION", ["12"]), ("what is the aspirin", ["12"]),
    ("neoplasm", ["11"]),  # a heading
    ("the of and", ["12"]),  # there is nothing else to search for
    ("xylophone", []), ("", []), ("...", []),
    ("pneumonia", ["14", "15", "13"]),  # a word in the title counts more than one in the abstract
])  # fmt: skip
def test_words_find_titles_abstracts_and_headings_by_stem_and_synonym(source, words, found):
    assert find(source, words) == found


@each("words, kind, found", [
    ("pneumonia", "all", ["13", "14", "15"]), ("pneumonia", "review", []), ("pneumonia", "trial", ["14"]),
    ("pneumonia", "case_report", ["15"]), ("pneumonia", "recent", ["13"]), ("pneumonia", "guideline", []),
    ("", "recent", ["11", "13"]),
])  # fmt: skip
def test_a_search_type_filters(source, words, kind, found):
    assert sorted(find(source, words, search_type=kind)) == found
    with pytest.raises(ToolError, match=r'search type = "newest"; allowed: all, review'):
        source.find_articles(ArticleQuery("a", search_type="newest"))


@each("query, found", [
    (ImageQuery("nodule"), {"f1", "f3"}), (ImageQuery("nodule", modality="computed tomography"), {"f1"}),
    (ImageQuery("nodule", body_part="Neck"), {"f3"}), (ImageQuery("nodule", modality="MRI"), set()),
    (ImageQuery("", modality="radiography"), {"f2"}), (ImageQuery("", body_part="chest"), {"f1", "f2"}),
    (ImageQuery("", modality="...", body_part='"'), set()),
])  # fmt: skip
def test_figures_are_found_by_caption_modality_and_body_part(source, query, found):
    assert {figure.uid for figure in source.find_images(query)} == found


def test_where_modality_and_body_part_are_not_known_caption_and_source_may_name_them(tmp_path):
    figures = [
        FoundImage("a", "Axial CT of the chest"),
        FoundImage("b", "A nodule", "Chest radiographs, 2020"),
        FoundImage("c", "Beside a CT of the chest", modality="MRI", body_part="neck"),
    ]
    source = SnapshotSource(write_snapshot(tmp_path / "s", figures=figures))
    assert {one.uid for one in source.find_images(ImageQuery("", body_part="chest"))} == {"a", "b"}
    assert {one.uid for one in source.find_images(ImageQuery("", "computed tomography"))} == {"a"}
    assert {one.uid for one in source.find_images(ImageQuery("nodule", "x-ray", "chest"))} == {"b"}


def test_equal_scores_are_ordered_by_year_then_by_pmid_and_a_limit_is_kept_within_bounds(source, tmp_path):
    pairs = (("9", 2001), ("10", 2001), ("8", 2010), ("7", None))
    articles = [Article(pmid, "Equal words", year=year) for pmid, year in pairs]
    assert find(SnapshotSource(write_snapshot(tmp_path / "s", articles)), "words") == ["8", "10", "9", "7"]
    assert len(find(source, "pneumonia", limit=2)) == 2
    assert find(source, "pneumonia", limit=-5) == []
    assert len(find(source, "pneumonia", limit=10**30)) == 3 <= MAX_LIMIT


@each("uid", ["f9", "", "f1' OR 1=1 --", "\ud800", "\x00", "x" * 10**6])
def test_a_figure_that_is_not_there_is_a_tool_error(source, uid):
    with pytest.raises(ToolError, match="holds no picture"):
        asyncio.run(source.load_image(FoundImage(uid)))


CODE = (
    "import sys; from tests.tools.search.snapshot.test_source import answer_all, SnapshotSource;"
    "sys.stdout.buffer.write(answer_all(SnapshotSource(sys.argv[1])))"
)


def _answer(source):
    return answer_all(source)


def test_threads_forks_and_new_processes_answer_alike_and_leave_the_file_as_it_is(source):
    before = source.path.read_bytes(), source.path.stat().st_mtime_ns, sorted(source.path.parent.iterdir())
    expected = answer_all(source)
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: answer_all(source), range(40))) == {expected}
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        assert pool.map(_answer, [source] * 4) == [expected] * 4
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sending.send_bytes(answer_all(source)))  # not pickled: the same object
    child.start()
    assert receiving.recv_bytes() == expected
    child.join()
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CODE, str(source.path)]
    assert subprocess.run(command, capture_output=True, check=True, env=environment).stdout == expected
    assert answer_all(source) == expected
    assert (source.path.read_bytes(), source.path.stat().st_mtime_ns, sorted(source.path.parent.iterdir())) == before
