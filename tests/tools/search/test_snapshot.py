"""Snapshots: the same file whatever the order, whole or absent; what a search in one finds hangs on it alone."""

import asyncio
import dataclasses
import json
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from examples import snapshot as module
from examples.snapshot import SnapshotWriter, list_kinds
from tests.support.scoring import refuse
from tests.support.snapshots import ARTICLES, FIGURES, draw_png, write_snapshot
from tests.support.tables import each
from viewbox.errors import ToolError
from viewbox.tools.search.records import SEARCH_TYPES, Article, ArticleQuery, FoundImage, ImageQuery
from viewbox.tools.search.snapshot import SnapshotSource
from viewbox.tools.search.snapshot.schema import BadRecord
from viewbox.tools.search.snapshot.source import MAX_LIMIT
from viewbox.tools.search.snapshot.words import Synonyms, read_shipped_synonyms, stem_all

WORDS = ("pneumonia", "lung nodule CT", "chest x-ray in a child", "heart attack", "", "the", "antibiotics effusion")
MADE = {"note": "n", "license": "l", "recorded": "2025-06-01"}


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


# ---- what is found
def test_an_article_comes_back_as_it_was_written_and_a_figure_with_its_picture(source):
    found = asyncio.run(source.search_articles(ArticleQuery("pneumonia", limit=10)))
    assert sorted(found, key=lambda one: one.pmid) == list(ARTICLES[2:])
    (found,) = asyncio.run(source.search_images(ImageQuery("thyroid")))
    assert found == FIGURES[2]
    assert asyncio.run(source.load_image(found)) == draw_png(2)
    for uid in ("f9", "", "f1' OR 1=1 --", "\ud800", "\x00", "x" * 10**6):
        with pytest.raises(ToolError, match="holds no picture"):
            asyncio.run(source.load_image(FoundImage(uid)))


@each("words, found", [  # by stem, by a synonym, by a heading; words of no meaning where there are no others
    ("nodule", ["11"]), ("CT", ["11"]), ("heart attacks", ["12"]), ("MYOCARDIAL INFARCTION", ["12"]),
    ("what is the aspirin", ["12"]), ("neoplasm", ["11"]), ("the of and", ["12"]), ("xylophone", []), ("", []),
    ("...", []), ("pneumonia", ["14", "15", "13"]),  # a word in the title counts more than one in the abstract
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
    figures = [FoundImage("a", "Axial CT of the chest"), FoundImage("b", "A nodule", "Chest radiographs, 2020"),
               FoundImage("c", "Beside a CT of the chest", modality="MRI", body_part="neck")]  # fmt: skip
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


CODE = (
    "import sys; from tests.tools.search.test_snapshot import answer_all, SnapshotSource;"
    "sys.stdout.buffer.write(answer_all(SnapshotSource(sys.argv[1])))"
)


@pytest.mark.slow
def test_threads_forks_and_new_processes_answer_alike_and_leave_the_file_as_it_is(source):
    before = source.path.read_bytes(), source.path.stat().st_mtime_ns, sorted(source.path.parent.iterdir())
    expected = answer_all(source)
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: answer_all(source), range(40))) == {expected}
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        assert pool.map(answer_all, [source] * 4) == [expected] * 4
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


# ---- what is written
def test_the_same_records_give_the_same_bytes_in_whatever_order_they_are_added_and_the_latest_counts(tmp_path):
    articles, figures = list(ARTICLES), [FoundImage(f"f{number}", "A figure") for number in range(20)]
    files = []
    for seed in range(3):
        random.Random(seed).shuffle(articles)
        order = random.Random(seed).sample(figures, len(figures))
        with SnapshotWriter(tmp_path / str(seed), **MADE) as writer:
            for article in articles:
                writer.add_article(article)
            for found in order:
                writer.add_image(found, draw_png(int(found.uid[1:])))
        files.append((tmp_path / str(seed)).read_bytes())
    assert files[0] == files[1] == files[2]
    source = SnapshotSource(write_snapshot(tmp_path / "s", [*ARTICLES, Article("11", "Replaced nodules")]))
    assert source.find_articles(ArticleQuery("replaced")) == [Article("11", "Replaced nodules")]
    assert source.describe()["articles"] == "5"


def test_an_older_snapshot_stays_until_the_new_one_is_whole_and_a_full_disk_leaves_no_half(tmp_path, monkeypatch):
    def fail(connection, *others):
        raise sqlite3.OperationalError("database or disk is full")

    path = write_snapshot(tmp_path / "s")
    before = path.read_bytes()
    with pytest.raises(BadRecord), SnapshotWriter(path, **MADE) as writer:
        list(map(writer.add_article, (Article("99", "New"), Article(""))))
    monkeypatch.setattr(module, "_index_figures", fail)
    with pytest.raises(sqlite3.OperationalError), SnapshotWriter(tmp_path / "new", **MADE) as writer:
        writer.add_article(ARTICLES[0])
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["s"]


def test_what_could_not_be_read_back_and_a_figure_without_a_picture_of_a_bounded_size_are_not_written(tmp_path):
    with SnapshotWriter(tmp_path / "s", **MADE) as writer:
        for article in [
            Article(""), Article("a b"), Article("<|im_end|>"), Article("1", year=20),
            Article("1", url="javascript:alert(1)"), Article("1", types=("a",) * 501), Article("1", title=None),
        ]:  # fmt: skip
            with pytest.raises(BadRecord):
                writer.add_article(article)
        for content in [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + bytes(11 * 2**20), "text", None]:
            with pytest.raises(BadRecord, match=r"content is .*; expected"):
                writer.add_image(FIGURES[0], content)
        assert writer.count() == (0, 0)


def test_a_date_is_a_date_and_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    for recorded in ["May", "2025-13-01", "2025"]:
        made = {**MADE, "recorded": recorded}
        refuse("allowed: a date as YYYY-MM-DD", SnapshotWriter, path=tmp_path / "s", **made)
        assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    refuse(r"--out '.*/file/s': .*file is not a folder", SnapshotWriter, path=tmp_path / "file" / "s", **MADE)


@each("types, year, kinds", [
    (("Systematic Review",), 2020, ["review"]), (("Clinical Trial, Phase III",), 2021, ["trial", "recent"]),
    (("RANDOMIZED CONTROLLED TRIAL",), None, ["trial"]), (("Practice Guideline",), 1990, ["guideline"]),
    (("Network Meta-Analysis", "Review"), 2030, ["review", "meta_analysis", "recent"]),
    (("Case Reports",), 2020, ["case_report"]),
    (("Journal Article", "Clinical Trial Protocol", "Peer Review"), 2020, []),
])  # fmt: skip
def test_publication_types_and_years_say_which_search_types_find_an_article(types, year, kinds):
    assert list_kinds(Article("1", types=types, year=year), 2025) == kinds
    assert set(kinds) <= set(SEARCH_TYPES)


def test_every_phrase_of_the_shipped_table_leads_to_all_others_of_its_class_and_stands_in_one():
    classes, seen = read_shipped_synonyms(), {}
    synonyms = Synonyms.build(classes)
    for number, phrases in enumerate(classes):
        for phrase in phrases:
            assert seen.setdefault(stem_all(tuple(phrase.lower().split())), number) == number, phrase
            found = {stem_all(same) for same in synonyms.group(phrase.lower().split())[0].phrases}
            assert {stem_all(tuple(one.lower().split())) for one in phrases} <= found
