"""What a snapshot is made of: the same file whatever the order, whole or absent, of records that can be read."""

import random
import sqlite3

import pytest

from examples import snapshot as module
from examples.snapshot import SnapshotWriter, list_kinds
from tests.support.snapshots import ARTICLES, FIGURES, draw_png, write_snapshot
from viewbox.errors import ConfigError
from viewbox.tools.search.records import SEARCH_TYPES, Article, ArticleQuery, FoundImage
from viewbox.tools.search.snapshot import SnapshotSource
from viewbox.tools.search.snapshot.schema import BadRecord
from viewbox.tools.search.snapshot.words import Synonyms, read_shipped_synonyms, stem_all

WORDS = {"note": "n", "license": "l", "recorded": "2025-06-01"}


def test_the_same_records_give_the_same_bytes_in_whatever_order_they_are_added(tmp_path):
    articles, figures = list(ARTICLES), [FoundImage(f"f{number}", "A figure") for number in range(20)]
    files = []
    for seed in range(3):
        random.Random(seed).shuffle(articles)
        order = random.Random(seed).sample(figures, len(figures))
        with SnapshotWriter(tmp_path / str(seed), **WORDS) as writer:
            for article in articles:
                writer.add_article(article)
            for found in order:
                writer.add_image(found, draw_png(int(found.uid[1:])))
        files.append((tmp_path / str(seed)).read_bytes())
    assert files[0] == files[1] == files[2]


def test_the_latest_record_of_an_identifier_counts(tmp_path):
    path = write_snapshot(tmp_path / "s", [*ARTICLES, Article("11", "Replaced nodules")])
    assert SnapshotSource(path).find_articles(ArticleQuery("replaced")) == [Article("11", "Replaced nodules")]
    assert SnapshotSource(path).describe()["articles"] == "5"


def test_an_older_snapshot_stays_until_the_new_one_is_whole_and_a_full_disk_leaves_no_half(tmp_path, monkeypatch):
    def fail(connection, *others):
        raise sqlite3.OperationalError("database or disk is full")

    path = write_snapshot(tmp_path / "s")
    before = path.read_bytes()
    with pytest.raises(BadRecord), SnapshotWriter(path, **WORDS) as writer:
        list(map(writer.add_article, (Article("99", "New"), Article(""))))
    monkeypatch.setattr(module, "_index_figures", fail)
    with pytest.raises(sqlite3.OperationalError), SnapshotWriter(tmp_path / "new", **WORDS) as writer:
        writer.add_article(ARTICLES[0])
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["s"]


def test_what_could_not_be_read_back_and_a_figure_without_a_picture_of_a_bounded_size_are_not_written(tmp_path):
    with SnapshotWriter(tmp_path / "s", **WORDS) as writer:
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
        with pytest.raises(ConfigError, match="allowed: a date as YYYY-MM-DD"):
            SnapshotWriter(tmp_path / "s", note="n", license="l", recorded=recorded)
        assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--out '.*/file/s': .*file is not a folder"):
        SnapshotWriter(tmp_path / "file" / "s", **WORDS)


def test_publication_types_and_years_say_which_search_types_find_an_article():
    for types, year, kinds in [
        (("Systematic Review",), 2020, ["review"]),
        (("Clinical Trial, Phase III",), 2021, ["trial", "recent"]),
        (("RANDOMIZED CONTROLLED TRIAL",), None, ["trial"]),
        (("Network Meta-Analysis", "Review"), 2030, ["review", "meta_analysis", "recent"]),
        (("Practice Guideline",), 1990, ["guideline"]),
        (("Case Reports",), 2020, ["case_report"]),
        (("Journal Article", "Clinical Trial Protocol", "Peer Review"), 2020, []),
    ]:
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
