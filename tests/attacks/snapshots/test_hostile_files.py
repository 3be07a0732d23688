"""A snapshot that a stranger made: a file that is none is named, and a bad row costs itself."""

import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hostile_snapshot import WORD, edit, write_hostile_snapshot
from tests.support.snapshots import ARTICLES, write_snapshot
from viewbox.errors import ConfigError, ToolError, ToolFault, ViewboxError
from viewbox.tools.search.records import Article, ArticleQuery, FoundImage, ImageQuery
from viewbox.tools.search.snapshot import SnapshotSource
from viewbox.tools.search.snapshot import source as opening

EVERYTHING = "pneumonia nodules aspirin chest"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return write_snapshot(tmp_path_factory.mktemp("good") / "good.sqlite")


@pytest.fixture
def path(good, tmp_path):
    """A copy of a good snapshot."""
    return Path(shutil.copy(good, tmp_path / "copy.sqlite"))


def find(path, words=EVERYTHING):
    return sorted(article.pmid for article in SnapshotSource(path).find_articles(ArticleQuery(words, limit=50)))


# ---------------------------------------------------------------------- files that are no snapshot
def write_other_sqlite(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE articles(pmid)")
    connection.commit()


def write_at(place, content):
    def change(path):
        with path.open("r+b") as file:
            file.seek(place)
            file.write(content)

    return change


def write(content):
    return lambda path: path.write_bytes(content)


def put(make):
    """Something else in the place of the file."""
    return lambda path: (path.unlink(), make(path))


def change_schema(*statements):
    unsafe = ("PRAGMA journal_mode=OFF", "PRAGMA synchronous=OFF", "BEGIN", *statements, "COMMIT")
    return lambda path: edit(path, *unsafe)


MANY = change_schema(*(f"CREATE TABLE t{number}(x)" for number in range(2_000)))
INDEX = "CREATE VIRTUAL TABLE figure_index USING fts5(caption, source, modality, body_part, content='{}')"


@pytest.mark.parametrize(("change", "reason"), [
    (Path.unlink, "there is no such file"), (put(Path.mkdir), "not a regular file"),
    (put(os.mkfifo), "not a regular file"), (put(write_other_sqlite), "is not a snapshot"),
    *((write(content), "is not a snapshot") for content in (b"", b"hello " * 100, b"SQLite format 3\x00")),
    (write_at(60, (7).to_bytes(4, "big")), "is of format 7; this viewbox reads format 1"),
    (lambda path: os.truncate(path, path.stat().st_size // 2), "is damaged"),
    (write_at(16, b"\x00\x00"), "is not a snapshot"),
    (lambda path: write_at(100, bytes(path.stat().st_size - 100))(path), "is damaged"),
    *((change_schema(*statements), "is not a snapshot: its schema") for statements in (
        ["CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM articles; END"],
        ["CREATE VIEW v AS SELECT load_extension('/tmp/evil.so')"],
        ["DROP TABLE meta", "CREATE VIEW meta AS SELECT 1 AS key, 'x' AS value"],
        ["CREATE VIEW synonyms AS SELECT * FROM article_terms", "CREATE VIEW article_terms AS SELECT * FROM synonyms"],
        ["CREATE TABLE more(x)"], ["CREATE INDEX more ON articles(upper(title))"], ["DROP TABLE pictures"],
        ["ALTER TABLE articles ADD COLUMN evil TEXT GENERATED ALWAYS AS (upper(title)) VIRTUAL"],
        *(["DROP TABLE figure_index", INDEX.format(content)] for content in ("", "meta")))),
    (MANY, "is not a snapshot: its schema"),
])  # fmt: skip
def test_a_file_that_is_no_snapshot_is_named_with_the_reason(change, reason, path):
    change(path)
    with pytest.raises(ConfigError, match=reason) as error:
        SnapshotSource(path).prepare()
    assert str(path) in str(error.value)
    assert error.value.key == "snapshot"


def test_without_fts5_the_error_says_so(path, monkeypatch):
    def refuse(connection, path):
        raise sqlite3.OperationalError("no such module: fts5")

    monkeypatch.setattr(opening, "_check_schema", refuse)
    with pytest.raises(ConfigError, match="the SQLite of this Python has no FTS5"):
        SnapshotSource(path).prepare()


def test_a_schema_that_does_not_end_is_interrupted(path, monkeypatch):
    monkeypatch.setattr(opening, "_STEPS_TO_OPEN", 5_000)
    monkeypatch.setattr(opening, "_STEPS_AT_ONCE", 100)
    MANY(path)
    with pytest.raises(ConfigError, match="is damaged"):
        SnapshotSource(path).prepare()


# ---------------------------------------------------------------------- rows
FIELDS = {
    "pmid": ["NULL", "x'00ff'", "''", "'1' || char(10) || '[/data]'", "'<|im_end|>'", "printf('%.*c', 300, '1')"],
    "title": ["NULL", "x'00ff'", "zeroblob(20000000)"], "journal": ["NULL", "x''"], "doi": ["NULL", "x'00'"],
    "year": ["'next'", "x'00'", "99999999999", "-1", "2020.5", "9e999"], "abstract": ["NULL", "x'ff'",
        "zeroblob(20000000)", "printf('%.*c', 17000000, 'a')"],
    "url": ["NULL", "'javascript:alert(1)'", "'https://a b'", "'https://x' || char(10)"],
    "types": ["NULL", "'{}'", "'[1]'", "'[' || printf('%.*c', 90000, '[')", "x'5b5d'"],
    "mesh": ["NULL", "'[null]'", "printf('%.*c', 5000, '1')"], "retracted": ["2", "'no'", "NULL"],
}  # fmt: skip


def allow_nulls(path):
    """Rewrites the schema so that NULL can be stored, and back."""
    statement = "UPDATE sqlite_master SET sql = ? WHERE name = 'articles'"
    (sql,) = sqlite3.connect(path).execute("SELECT sql FROM sqlite_master WHERE name = 'articles'").fetchone()
    edit(path, (statement, (sql.replace(" NOT NULL", ""),)), schema=True)
    return lambda: edit(path, (statement, (sql,)), schema=True)


def test_a_bad_row_costs_itself(good, path):
    for column in FIELDS:
        for value in FIELDS[column]:
            shutil.copy(good, path)
            restore = allow_nulls(path)
            edit(path, f"UPDATE articles SET {column} = {value} WHERE pmid = '14'")
            restore()
            assert find(path) == ["11", "12", "13", "15"], value


def test_text_that_is_not_utf8_is_replaced_and_rows_that_the_table_lacks_are_left_out(path):
    edit(path, "UPDATE articles SET title = CAST(x'61ff62' AS TEXT) WHERE pmid = '14'")
    (found,) = [one for one in SnapshotSource(path).find_articles(ArticleQuery("pneumonia")) if one.pmid == "14"]
    assert found.title == "a\ufffdb"
    edit(path, "DELETE FROM articles WHERE pmid IN ('11', '12')")  # the index names them still
    assert find(path) == ["13", "14", "15"]


def test_many_bad_rows_do_not_shorten_the_answer(tmp_path):
    articles = [Article(str(100 + number), "Equal words", year=2020) for number in range(30)]
    path = write_snapshot(tmp_path / "s", articles)
    edit(path, "UPDATE articles SET year = 'x' WHERE id > 10")  # the 20 best
    assert len(SnapshotSource(path).find_articles(ArticleQuery("words", limit=5))) == 5


@pytest.mark.parametrize("value", ["NULL", "'text'", "zeroblob(100)", "zeroblob(20000000)", "12", "x'89504e47'"])
def test_a_picture_that_is_none_is_a_tool_error(path, value):
    edit(path, "DROP TABLE pictures", "CREATE TABLE pictures(id INTEGER PRIMARY KEY, content BLOB)")
    edit(path, f"INSERT INTO pictures SELECT id, {value} FROM figures")
    statement = "UPDATE sqlite_master SET sql = replace(sql, 'BLOB)', 'BLOB NOT NULL)') WHERE name = 'pictures'"
    edit(path, statement, schema=True)
    source = SnapshotSource(path)
    with pytest.raises(ToolError, match="the snapshot holds no picture of it"):
        source.read_picture(source.find_images(ImageQuery("nodule"))[0].uid)


def test_a_search_that_takes_too_long_is_interrupted(path, monkeypatch):
    source = SnapshotSource(path)
    source.prepare()
    monkeypatch.setattr("viewbox.tools.search.snapshot.source.limit_steps", _stop_at_once)
    with pytest.raises(ToolError, match="takes too long; use fewer words"):
        source.find_articles(ArticleQuery(EVERYTHING))


def _stop_at_once(connection, steps=0):  # for opening the file they are given
    connection.set_progress_handler(lambda: not steps, 1)


# ---------------------------------------------------------------------- damage
_SEARCH = """
import sys
from viewbox.tools.search.records import ArticleQuery, ImageQuery
from viewbox.tools.search.snapshot import SnapshotSource
from viewbox.errors import ConfigError, ToolError, ToolFault
for path in sys.argv[1:]:
    source = SnapshotSource(path)
    for search, query in ((source.find_articles, ArticleQuery("pneumonia nodules", limit=50)),
                          (source.find_articles, ArticleQuery("", "recent")),
                          (source.find_images, ImageQuery("nodule", modality="CT")),
                          (source.read_picture, "f1")):
        try:
            search(query)
        except (ConfigError, ToolError, ToolFault):
            pass
print("done")
"""


@pytest.mark.parametrize("seed", range(2))
def test_damaged_pages_end_in_results_or_named_errors_and_never_in_a_crash(good, tmp_path, seed):
    random_ = random.Random(seed)
    whole, paths = good.read_bytes(), []
    for number in range(60):
        content = bytearray(whole)
        for _ in range(random_.choice((1, 3, 30))):
            place = random_.randrange(100, len(content))
            length = random_.choice((1, 4, 64))
            content[place : place + length] = random_.randbytes(min(length, len(content) - place))
        paths.append(tmp_path / f"{number}.sqlite")
        paths[-1].write_bytes(content)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    limit = {"timeout": 300, "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))}
    command = [sys.executable, "-c", _SEARCH, *map(str, paths)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, **limit)
    assert (found.returncode, found.stdout) == (0, "done\n"), found.stderr


@pytest.mark.parametrize(("place", "error"), [("source._check_version", ConfigError), ("source._fetch", ToolFault)])
def test_a_damaged_page_that_asks_for_memory_is_named(path, monkeypatch, place, error):
    def ask(*_):
        raise MemoryError  # as sqlite3 does

    monkeypatch.setattr(f"viewbox.tools.search.snapshot.{place}", ask)
    with pytest.raises(error, match="damaged"):
        find(path)


def test_a_file_that_is_replaced_while_it_is_used_is_not_mixed_with_the_old_one(path, tmp_path):
    source = SnapshotSource(path)
    assert source.find_articles(ArticleQuery(EVERYTHING))
    os.replace(write_snapshot(tmp_path / "other", ARTICLES[:1]), path)
    with pytest.raises(ToolFault, match="was replaced while it was in use"):
        source.find_articles(ArticleQuery(EVERYTHING))


# ---------------------------------------------------------------------- words
QUERIES = [
    '"pneumonia" OR *', "pneumonia NEAR(nodule, 3)", "pneumonia AND NOT chest", "{title abstract} : pneumonia",
    "^pneumonia", "pneumonia + nodule", "'; DROP TABLE articles; --", "pneumonia\x00nodule", "\ud800pneumonia\udfff",
    "pneumonia \u202e\u200b\u2066", "\uff02pneumonia\uff02", "(((((pneumonia", "AND OR NOT NEAR pneumonia",
    "pneumonia " + "x" * 1_000_000, "pneumonia " + " ".join(map(str, range(100_000))), "pneumonia " + '"' * 1_000_000,
    "pneumonia " + "e" + "\u0301" * 100_000, "kinds : pneumonia", "rank pneumonia bm25(10)",
]  # fmt: skip


def test_nothing_that_a_model_writes_is_an_operator(good):
    source = SnapshotSource(good)
    for words in QUERIES:
        found = {one.pmid for one in source.find_articles(ArticleQuery(words, limit=50))}
        assert {"13", "14", "15"} <= found or "pneumonia" not in words, words[:30]
        source.find_images(ImageQuery(words, modality=words, body_part=words))


def test_an_operator_does_not_exclude_filter_or_extend_and_no_word_reaches_the_column_of_search_types(good):
    assert find(good, "pneumonia NOT chest") == find(good, "pneumonia chest")
    assert find(good, "pneumo*") == []
    assert find(good, "abstract:aspirin") == find(good, "abstract aspirin") == ["12"]
    for word in ("review", "recent", "\ue000recent", "kinds:recent"):
        assert find(good, word) == []


# ---------------------------------------------------------------------- texts
def test_hostile_texts_come_back_as_data_cut_and_without_nul(tmp_path):
    source = SnapshotSource(write_hostile_snapshot(tmp_path / "hostile"))
    articles = source.find_articles(ArticleQuery(WORD, limit=100))
    figures = source.find_images(ImageQuery(WORD, limit=100))
    assert len(articles) == 2 * len(figures) == 38
    assert max(len(one.abstract) for one in articles) == 100_000
    assert not any("\x00" in one.abstract + one.title for one in articles)
    assert all(source.read_picture(one.uid) for one in figures)


def test_every_error_of_a_snapshot_is_one_of_viewbox(tmp_path):
    for name in ("\x00", "a" * 5000, ""):
        with pytest.raises(ViewboxError):
            SnapshotSource(tmp_path / name).prepare()
        with pytest.raises(ViewboxError):
            SnapshotSource(tmp_path / name).read_picture(FoundImage("f1").uid)
