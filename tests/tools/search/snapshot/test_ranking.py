"""How a snapshot is searched in which more records match than are ranked; limits are small here."""

import pytest

from tests.support.snapshots import write_snapshot
from viewbox.tools.search.records import Article, ArticleQuery
from viewbox.tools.search.snapshot import SnapshotSource, schema, words
from viewbox.tools.search.snapshot import source as answering

COUNT = 40


def name_words(number):
    """Every record holds "all", every second "half", every eighth "eighth"; record 17 alone holds "single"."""
    found = ["all"] + ["half"] * (number % 2 == 0) + ["eighth"] * (number % 8 == 0) + ["single"] * (number == 17)
    return " ".join(found + ["filler"] * (4 - len(found)))  # equally long, because length counts


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setattr(schema, "TERM_RECORDS", 1)
    monkeypatch.setattr(answering, "TERM_RECORDS", 1)
    monkeypatch.setattr(answering, "MAX_RANKED", 6)
    monkeypatch.setattr(words, "STOP_WORDS", frozenset())
    articles = [
        Article(str(100 + number), name_words(number), year=2000, types=("Review",) if number % 4 == 0 else ())
        for number in range(COUNT)
    ]
    return SnapshotSource(write_snapshot(tmp_path / "s", articles))


def find(source, text, limit=50, kind="all"):
    return [int(one.pmid) - 100 for one in source.find_articles(ArticleQuery(text, kind, limit))]


def test_a_word_of_more_records_than_are_ranked_finds_the_newest_of_them(source):
    assert find(source, "half") == [38, 36, 34, 32, 30, 28]


def test_records_with_a_rare_word_come_first_and_then_those_with_all_frequent_ones(source):
    found = find(source, "single half all")
    assert found[0] == 17
    assert found[1:7] == [38, 36, 34, 32, 30, 28]


def test_records_with_a_rare_word_are_ordered_by_the_other_words(source):
    found = find(source, "single eighth half")  # six records: "single" is in 17, "eighth" in 0, 8, 16, 24, 32
    assert found[0] == 17
    assert found[1:6] == [32, 24, 16, 8, 0]


def test_frequent_words_are_left_out_one_after_the_other_until_enough_is_found(source):
    assert find(source, "eighth half all", limit=5) == [32, 24, 16, 8, 0]
    assert find(source, "missing half all", limit=3) == [38, 36, 34]


def test_a_word_that_is_too_frequent_does_not_count_beside_others(source, monkeypatch):
    monkeypatch.setattr(answering, "FREQUENT", 30)
    assert find(source, "all half") == find(source, "half")
    assert find(source, "all") == [39, 38, 37, 36, 35, 34]


def test_a_search_type_filters_before_records_are_counted(source):
    assert find(source, "half", kind="review") == [36, 32, 28, 24, 20, 16]


def test_no_record_is_found_twice_and_the_limit_holds(source):
    for text in ("single eighth half all", "eighth all", "half all single"):
        found = find(source, text, limit=9)
        assert len(found) == len(set(found)) <= 9


def test_without_the_limits_all_records_are_ranked_by_all_words(source, monkeypatch):
    monkeypatch.setattr(answering, "MAX_RANKED", COUNT)
    assert find(source, "single half")[0] == 17
    assert len(find(source, "single half")) == 21
