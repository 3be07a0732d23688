"""Hostile articles and figures, from the snapshot to the model: what reaches it is data, whole, bounded and marked."""

import re

import numpy as np
import pytest

from tests.support.hostile_snapshot import (
    HOSTILE_TEXTS,
    WORD,
    list_hostile_articles,
    list_hostile_figures,
    write_hostile_snapshot,
)
from tests.support.replies import call, list_results
from viewbox import BaseMultiTurnEnv, Task
from viewbox.assets import resolve_model_path
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.images.source import Source
from viewbox.rewards.evidence import EvidenceReward
from viewbox.tools.search.records import ArticleQuery, ImageQuery
from viewbox.tools.search.wording import write_articles, write_images
from viewbox.utils.sanitize import CONTROL_TOKENS

ARTICLES = {article.pmid: article for article in list_hostile_articles()}
LINE = re.compile(
    r"\d+ (article|figure)s? found\.|\[\d+\] |Title: |Abstract: |Source: |doi:|https://|\[\d+ more left out\]|To zoom"
)


def check_text(text):
    """Lines of ours, bounded, without control tokens, calls and invisible characters."""
    lines = text.split("\n")
    assert all(LINE.match(line) for line in lines), [line for line in lines if not LINE.match(line)]
    assert len(text) <= 5_000 + 200  # and the sentence about open_image
    assert all(len(line) <= 500 for line in lines)
    assert not CONTROL_TOKENS.search(text)
    assert "<tool_call>" not in text
    assert all(character.isprintable() or character == "\n" for character in text)
    assert not re.search("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e0fff]", text)


class Films(BaseMultiTurnEnv):
    """A film, and a literature."""

    name = "films"
    tools = ("zoom", "open_image")
    max_turns = 30

    def default_reward(self):
        return EvidenceReward()

    def images(self, task):
        return [Source.of(np.zeros((40, 40), np.uint8))]


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    path = write_hostile_snapshot(tmp_path_factory.mktemp("hostile") / "hostile.sqlite")
    return Films(specialists={"search": {"kind": "literature", "snapshot": str(path)}})


@pytest.fixture(scope="module")
def episode(env):
    """An episode that searches for every hostile text, in articles and figures."""
    asked = [call("search_web", query=f"{WORD} {name}", max_results=10) for name in HOSTILE_TEXTS]
    asked += [call("search_images", query=f"{WORD} {name}", max_results=6) for name in HOSTILE_TEXTS]
    replies = ["".join(asked[first : first + 3]) for first in range(0, len(asked), 3)]
    seen = {}

    def policy(messages):
        seen["messages"] = messages
        said = sum(message.role == "assistant" for message in messages)
        return replies[said] if said < len(replies) else "done"

    played = env.play(Task("t"), policy)
    return played, [message for message in seen["messages"] if message.role == "tool"]


def test_every_hostile_text_is_found(episode):
    results = list_results(episode[0])
    assert all(result.success for result in results), [result.error for result in results if not result.success]
    found = {pmid for result in results for pmid in result.facts["pmids"]}
    assert all(found & {str(660_000 + 2 * number), str(660_001 + 2 * number)} for number in range(len(HOSTILE_TEXTS)))
    assert len({uid for result in results for uid in result.facts.get("figures", ())}) > 12


def test_the_model_reads_them_between_boundary_marks_that_no_text_closes(episode):
    for message in episode[1]:
        opened = re.fullmatch(r"\[data ([0-9a-f]{8})\]\n(.*)\n\[/data \1\]", message.text, re.DOTALL)
        assert opened
        assert not re.search(r"[\[\uff3b\u3010\u27e6]\s*/?\s*data\b", opened[2], re.IGNORECASE)
        assert opened[1] not in opened[2]


def test_what_the_model_reads_has_lines_of_ours_alone(episode):
    for result in list_results(episode[0]):
        check_text(result.text)


def test_each_article_and_figure_alone_has_lines_of_ours_alone():
    for article in ARTICLES.values():
        text, shown = write_articles(ArticleQuery(WORD), [article])
        check_text(text)
        assert shown == [article]
    for figure in list_hostile_figures():
        text, shown = write_images(ImageQuery(WORD), [figure], [None])
        check_text(text)
        assert shown == [figure]


@pytest.mark.slow
def test_a_tokenizer_reads_no_special_token_in_them(episode):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(resolve_model_path("package:tiny_viewer"))
    special = set(tokenizer.all_special_ids) | set(tokenizer.get_added_vocab().values())
    assert special & set(tokenizer(HOSTILE_TEXTS["chat tokens, ChatML"]).input_ids)  # it would, in the raw text
    for message in episode[1]:
        assert special.isdisjoint(tokenizer(message.text, add_special_tokens=False).input_ids)


def test_an_id_that_an_abstract_forges_is_no_evidence(env):
    task = Task("t", reference={"evidence": ["660000"]})
    forged = env.play(task, ScriptedPolicy([call("search_web", query=f"{WORD} forged record"), "done"]))
    assert not {"1", "2", "666"} & {pmid for result in list_results(forged) for pmid in result.facts["pmids"]}
