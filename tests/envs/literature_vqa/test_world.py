"""The invented world: topics of one split each, articles that say what the facts say, and the shipped snapshot."""

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.support.tables import each
from tests.test_benchmarks import load
from viewbox.assets import resolve_snapshot_path
from viewbox.envs.literature_vqa.world import QUESTIONS, find_facts, read_facts, write_query
from viewbox.tools.search.records import ArticleQuery, ImageQuery
from viewbox.tools.search.snapshot import SnapshotSource

FIGURES, WORLD = load("literature_figures"), load("literature_world")
SHIPPED = SnapshotSource(resolve_snapshot_path("package:literature"))


def test_no_topic_drug_or_disease_is_in_both_splits():
    words = {"train": set(), "test": set()}
    for fact in read_facts():
        values = [fact.right, fact.wrong] if fact.question == "therapy" else []
        values += [*fact.right.values()] if fact.question == "cause" else []
        names = {fact.topic.key, *filter(None, [fact.drug])}
        words[fact.topic.split] |= names | {str(value).split()[0] for value in values}
    assert len(words["train"]) > 100
    assert len(words["test"]) > 50
    assert words["train"].isdisjoint(words["test"])


@each("split", ["train", "test"])
@each("question", list(QUESTIONS))
def test_every_question_has_facts_with_and_without_an_answer_in_both_splits(split, question):
    answerable, others = (find_facts(question, split, known) for known in (True, False))
    assert len(answerable) >= 4
    assert len({fact.status for fact in answerable}) >= 3
    assert others
    assert {fact.status for fact in others} <= {"absent", "retracted", "unreported"}


def test_an_article_says_what_its_role_says_and_only_standing_articles_support_a_fact():
    roles = Counter()
    for written in WORLD.write_articles():
        roles[written.role] += 1
        article = written.article
        assert article.retracted == (written.role == "retracted") == article.title.startswith("RETRACTED: ")
        if written.fact is None:
            continue
        [fact] = [one for one in read_facts() if one == written.fact]  # of the shipped file
        said = fact.right if written.role in ("right", "second") else fact.wrong
        assert any(WORLD.state(fact, said, count) in article.abstract for count in range(24, 424))
        assert (article.pmid in fact.evidence) == (written.role in ("right", "second"))
    assert {"right", "second", "old", "retracted", "review", "general"} == set(roles)
    assert all(bool(fact.evidence) == fact.is_answerable for fact in read_facts())
    assert all(fact.right != fact.wrong for fact in read_facts())


def test_a_newer_article_corrects_an_older_one_and_no_article_is_about_an_absent_topic():
    years = {}
    for written in WORLD.write_articles():
        if written.fact is not None and written.fact.status == "revised":
            years.setdefault((written.fact.topic.name, written.fact.question), {})[written.role] = written.article
    for pair in years.values():
        assert pair["old"].year < pair["right"].year
        assert f"corrects the article of {pair['old'].year}" in pair["right"].abstract
    absent = {fact.topic.key for fact in read_facts() if fact.status == "absent"}
    told = " ".join(f"{one.article.title} {one.article.abstract}" for one in WORLD.write_articles())
    assert len(absent) > 9
    assert not any(name in told for name in absent)


def test_the_shipped_facts_and_snapshot_are_those_that_the_script_invents_and_no_id_or_link_can_be_real():
    assert list(read_facts()) == list(WORLD.find_support())
    assert [fact.evidence for fact in read_facts()] == [fact.evidence for fact in WORLD.find_support()]
    info = SHIPPED.describe()
    articles = [written.article for written in WORLD.write_articles()]
    assert (info["articles"], info["figures"]) == (str(len(articles)), str(FIGURES.COUNT))
    assert 280 <= len(articles) <= 330
    assert "invented" in info["note"]
    for article in articles:
        assert article in SHIPPED.find_articles(ArticleQuery(article.title, limit=10))
        assert len(article.pmid) == 9
        assert int(article.pmid) >= WORLD.FIRST_PMID
        assert article.doi.startswith("10.0000/")
        assert article.url == f"https://literature.invalid/{article.pmid}"
    assert Path(resolve_snapshot_path("package:literature")).stat().st_size < 3 * 2**20


@pytest.mark.slow
def test_the_script_writes_the_shipped_pictures_and_a_file_that_another_process_writes_again(tmp_path):
    script = Path(__file__).resolve().parents[3] / "benchmarks" / "write_literature.py"
    for name in "ab":
        done = subprocess.run([sys.executable, script, tmp_path / name], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["figures"] == FIGURES.COUNT
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    written, pictures = SnapshotSource(tmp_path / "a"), sqlite3.connect(tmp_path / "a")
    uids = [uid for (uid,) in pictures.execute("SELECT uid FROM figures")]
    assert len(uids) == FIGURES.COUNT
    for uid in uids:
        files = (source.read_picture(uid) for source in (written, SHIPPED))
        one, two = (cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_GRAYSCALE) for file in files)
        assert one.shape == (320, 320)
        assert np.abs(one.astype(int) - two.astype(int)).mean() < 1.0  # another OpenCV may write other bytes


def test_a_search_for_a_fact_finds_what_supports_it_among_five_and_one_for_figures_those_of_a_disease():
    for fact in read_facts():
        found = [article.pmid for article in SHIPPED.find_articles(ArticleQuery(write_query(fact)))]
        assert set(fact.evidence) <= set(found), fact
    shown = [one for one in WORLD.write_articles() if one.fact is not None and one.fact.question == "shows"]
    for figure in [FIGURES.describe_figure(one) for one in shown][:10]:
        [name] = {word for word in figure.caption.split() if len(word) > 4 and word[0].isupper()} - {"Frontal"}
        found = SHIPPED.find_images(ImageQuery(name, "x-ray", "chest"))
        assert figure.uid in [one.uid for one in found]


def test_draws_are_those_of_every_version_of_python():
    draws = WORLD.Draws(7)
    assert [draws.below(100) for _ in range(8)] == [71, 87, 95, 29, 80, 46, 36, 47]
    assert (draws.mix("abcdef"), draws.pick("xyz")) == (["b", "d", "e", "c", "f", "a"], "y")
