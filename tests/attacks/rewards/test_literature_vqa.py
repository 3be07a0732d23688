"""What a policy would try in `literature_vqa`: citing without knowing, knowing without citing, giving up, and so on."""

import json
from functools import cache

import pytest
from msgspec.structs import replace

from tests.support.tables import each
from tests.test_benchmarks import load
from viewbox import make
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.literature_vqa.env import EvidenceReward, LiteratureAnswerReward
from viewbox.envs.literature_vqa.world import UNKNOWN, write_query
from viewbox.records import Episode
from viewbox.utils.frozen import FrozenDict

ENV = make("literature_vqa", boundary=False)
ARTICLES = load("literature_world").write_articles()
ANSWER, CAP = 0.35, 0.35 + 1e-9  # what a right answer earns that cites nothing


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def reply(answer, evidence):
    return json.dumps({"answer": answer, "evidence": evidence, "continue": False})


@cache
def find_tasks(answerable, status=None, count=5):
    """Tasks of all kinds of questions, with or without an answer."""
    found = [
        task
        for task in ENV.tasks[:260]
        if (task.reference["answer"] != UNKNOWN) == answerable and status in (None, task.metadata["status"])
    ]
    return found[:count]


class Try:
    """What a policy knows at its last turn: the task, its case, and what its search returned."""

    def __init__(self, task, returned):
        self.task, self.case, self.fact = task, ENV.plan(task), ENV.plan(task).fact
        self.gold, self.right = list(task.reference["evidence"]), self.case.answer
        self.returned, self.text = list(returned.get("pmids", ())), returned.get("text", "")
        about = [one for one in ARTICLES if one.fact == self.fact]
        self.retracted = [one.article.pmid for one in about if one.role == "retracted"]
        self.old = [one.article.pmid for one in about if one.role == "old"]
        self.reviews = [one.article.pmid for one in ARTICLES if one.role == "review" and one.topic == self.fact.topic]

    def search(self):
        return call("search_web", query=write_query(self.fact), max_results=10)

    @property
    def wrong(self):
        """A wrong answer of the right form."""
        kind = self.task.reference["kind"]
        if kind == "closed":
            return "no" if self.right == "yes" else "yes"
        if kind == "choice":
            return next(choice for choice in self.case.choices if choice != self.right)
        return self.fact.drug + "x" if kind == "text" else float(self.right) + 1

    @property
    def outdated(self):
        """What an older or retracted article says of this picture."""
        value = self.fact.wrong
        if isinstance(value, dict):
            return next(value[key] for key, said in self.fact.right.items() if said == self.right)
        if isinstance(value, tuple):
            return self.wrong if self.task.reference["kind"] == "closed" else value[0]
        return value


def play(task, answer, looks=lambda attempt: [attempt.search()]):
    seen = {}

    def policy(messages):
        replies = sum(message.role == "assistant" for message in messages)
        if replies == 0:
            policy.looks = looks(Try(task, {}))
        if replies < len(policy.looks):
            return policy.looks[replies]
        return reply(*answer(Try(task, seen)))

    class Watched(ScriptedPolicy):
        def __call__(self, messages):
            for message in messages:
                if message.role == "tool" and "article" in message.text:
                    seen["text"] = message.text
                    seen["pmids"] = [
                        line.split("PMID ")[1][:9] for line in message.text.split("\n") if "] PMID" in line
                    ]
            return policy(messages)

    return ENV.play(task, Watched([]))


def score(task, answer, **how):
    episode = play(task, answer, **how)
    assert ENV.score(episode) == episode.scores  # from the record alone
    return episode.scores.total


def no_look(attempt):
    return []


IDS = [str(990000001 + n) for n in range(318)]
# (name, the answer and evidence of an attempt, statuses of the tasks, at most, why)
CITED = [
    ("nothing cited", lambda a: (a.right, []), None, CAP, "the rest is for evidence"),
    ("everything that was returned", lambda a: (a.right, a.returned), None, 0.63, "precision falls"),
    ("everything, the right ones first", lambda a: (a.right, [*a.gold, *a.returned]), None, 0.63, "order is nothing"),
    ("twenty ids", lambda a: (a.right, IDS[:20]), None, 0.5, "no tool returned most"),
    ("the right ones among twenty ids", lambda a: (a.right, [*a.gold, *IDS[:18]]), None, 0.5, "precision falls"),
    ("ids that nobody returned", lambda a: (a.right, ["990009999"]), None, CAP, "not in this literature"),
    ("ids with text behind", lambda a: (a.right, [f"{one} supports it" for one in a.gold]), None, CAP, "no id"),
    ("ids with text before", lambda a: (a.right, [f"see PMID {one}" for one in a.gold]), None, CAP, "no id"),
    ("two ids in a text", lambda a: (a.right, [f"{a.gold[0]}, {a.gold[-1]}"]), None, CAP, "no id"),
    ("all ids in one text", lambda a: (a.right, [" ".join(a.returned)]), None, CAP, "no id"),
    ("a range of ids", lambda a: (a.right, ["990000001-990000318"]), None, CAP, "no id"),
    ("the numbers of the list", lambda a: (a.right, [1, 2, 3]), None, CAP, "no PMIDs"),
    ("the numbers in brackets", lambda a: (a.right, ["[1]", "[2]"]), None, CAP, "no PMIDs"),
    ("addresses", lambda a: (a.right, [f"https://literature.invalid/{one}" for one in a.gold]), None, CAP, "no PMIDs"),
    ("DOIs", lambda a: (a.right, [f"doi:10.0000/invented.{one}" for one in a.gold]), None, CAP, "no PMIDs"),
    ("titles", lambda a: (a.right, [a.text.split("Title: ")[1][:40]]), None, CAP, "no PMIDs"),
    ("other digits", lambda a: (a.right, ["".join(chr(ord(c) + 0xFEE0) for c in one) for one in a.gold]), None, CAP,
     "no ASCII digits"),
    ("ids with a zero before", lambda a: (a.right, [f"0{one}" for one in a.gold]), None, CAP, "another id"),
    ("negative ids", lambda a: (a.right, [-int(one) for one in a.gold]), None, CAP, "no ids"),
    ("reviews", lambda a: (a.right, a.reviews), None, CAP, "they say nothing about it"),
    ("the review beside the right one", lambda a: (a.right, a.gold + a.reviews), "known", 0.79, "one of two"),
    ("the retracted one beside the right one", lambda a: (a.right, a.gold + a.retracted), "disputed", CAP, "retracted"),
    ("the retracted one alone", lambda a: (a.right, a.retracted), "disputed", CAP, "retracted"),
    ("the outdated one beside the right one", lambda a: (a.right, a.gold + a.old), "revised", 0.79, "one of two"),
    ("the outdated one alone", lambda a: (a.right, a.old), "revised", CAP, "it says another thing"),
    ("one of two right ones", lambda a: (a.right, a.gold[:1]), "confirmed", 0.79, "recall"),
    ("one of two right ones, repeated", lambda a: (a.right, a.gold[:1] * 9), "confirmed", 0.79, "an id counts once"),
]  # fmt: skip


@each(("name", "answer", "status", "most", "why"), CITED)
def test_a_right_answer_with_other_citations_earns_less_than_with_the_right_ones(name, answer, status, most, why):
    tasks = find_tasks(True, status, 2)
    assert tasks
    for task in tasks:
        total = score(task, answer)
        assert ANSWER - 1e-9 <= total <= most


NOT_SEARCHED = [
    ("the right ids without a search", no_look, "no tool returned them"),
    ("the right ids after a search for another topic", lambda a: [call("search_web", query="noise of a scanner")],
     "no tool returned them"),
    ("the right ids after a search that failed", lambda a: [call("search_web", query="")], "no tool returned them"),
    ("the right ids after a zoom", lambda a: [call("zoom", factor=2)], "no tool returned them"),
    ("the right ids in the query", lambda a: [call("search_web", query=" ".join(a.gold))], "a query returns nothing"),
]  # fmt: skip


@each(("name", "looks", "why"), NOT_SEARCHED)
def test_an_id_counts_only_if_a_tool_of_this_episode_returned_it(name, looks, why):
    for task in find_tasks(True, None, 7):
        assert score(task, lambda a: (a.right, a.gold), looks=looks) == pytest.approx(ANSWER)


def list_all(attempt):
    choices = attempt.case.choices or ("yes", "no", attempt.right, attempt.wrong)
    return " ".join(map(str, choices))


# (name, the answer of an attempt, statuses of the tasks, why)
ANSWERED = [
    ("wrong, with the right evidence", lambda a: a.wrong, None, "evidence needs a right answer"),
    ("outdated", lambda a: a.outdated, "revised", "a newer article corrects it"),
    ("retracted", lambda a: a.outdated, "disputed", "it does not stand"),
    ("given up", lambda a: UNKNOWN, None, "an article supports an answer"),
    ("every choice", list_all, None, "it chooses none"),
    ("every letter", lambda a: "A B C D", None, "it chooses none"),
    ("yes and no", lambda a: "yes, no", None, "both ways"),
    ("right or wrong", lambda a: f"{a.right} or {a.wrong}", None, "both ways"),
    ("right, but hedged", lambda a: f"probably {a.right}", None, "it does not say it"),
    ("right, but denied", lambda a: f"not {a.right}", None, "the opposite"),
    ("right or unknown", lambda a: f"{a.right} / {UNKNOWN}", None, "both ways"),
    ("a range of numbers", lambda a: "0-1000", None, "it is no number"),
    ("every number", lambda a: " ".join(map(str, range(400))), None, "it is no number"),
    ("another unit", lambda a: f"{a.right} kg", None, "another unit"),
    ("what the tool said", lambda a: a.text, None, "copied"),
    ("the question", lambda a: a.case.question, None, "copied"),
    ("the topic", lambda a: a.fact.topic.name, None, "no answer"),
    ("a list of the right answer", lambda a: str([a.right, a.wrong]), None, "both ways"),
    ("the PMID as answer", lambda a: a.gold[0], None, "no answer"),
    ("nothing", lambda a: " ", None, "no answer"),
]


@each(("name", "answer", "status", "why"), ANSWERED)
def test_a_wrong_answer_earns_nothing_however_well_it_cites(name, answer, status, why):
    tasks = find_tasks(True, status, 4)
    assert tasks
    for task in tasks:
        assert score(task, lambda a: (answer(a), a.gold)) == 0.0


# (name, looks, the answer and evidence of an attempt, at most, why)
GIVEN_UP = [
    ("without a search", no_look, lambda a: (UNKNOWN, []), CAP, "it did not look"),
    ("after a search for another topic", lambda a: [call("search_web", query="noise")], lambda a: (UNKNOWN, []), CAP,
     "it did not look for this one"),
    ("after a search that failed", lambda a: [call("search_web", query=a.fact.topic.name, max_results=99)],
     lambda a: (UNKNOWN, []), CAP, "nothing was searched"),
    ("after a zoom", lambda a: [call("zoom", factor=2)], lambda a: (UNKNOWN, []), CAP, "it did not look"),
    ("with everything cited", None, lambda a: (UNKNOWN, a.returned), CAP, "nothing supports it"),
    ("with an id of the prompt's kind", None, lambda a: (UNKNOWN, ["1"]), CAP, "nothing supports it"),
    ("with empty texts cited", None, lambda a: (UNKNOWN, [""]), CAP, "a citation that cannot be read"),
    ("in other words", None, lambda a: ("I cannot know", []), 0.0, "the word was given"),
    ("as an empty text", None, lambda a: ("", []), 0.0, "no answer"),
    ("as none", None, lambda a: ("none", []), 0.0, "the word was given"),
    ("with a guess beside it", None, lambda a: (f"{UNKNOWN}, or yes", []), 0.0, "both ways"),
    ("not at all: what an invalid article says", None, lambda a: (a.outdated, a.retracted), 0.0, "nothing supports it"),
    ("not at all: a guess", None, lambda a: ("yes", []), 0.0, "nothing supports it"),
]  # fmt: skip


@each(("name", "looks", "answer", "most", "why"), GIVEN_UP)
def test_giving_up_pays_in_full_only_after_a_search_and_without_citations(name, looks, answer, most, why):
    for task in find_tasks(False, None, 7):
        how = {} if looks is None else {"looks": looks}
        assert score(task, lambda a: (UNKNOWN, [])) == pytest.approx(1.0)  # the honest one
        assert score(task, answer, **how) <= most


def test_an_answer_of_another_form_is_no_answer():
    task = find_tasks(True)[0]
    forms = [{"answer": ["yes", "no"], "evidence": []}, {"answer": "yes", "evidence": "990000001"},
             {"answer": "yes", "evidence": [["990000001"]]}, {"answer": "yes", "evidence": {"a": 1}},
             {"answer": "yes", "evidence": IDS}, {"answer": None, "evidence": []}, {"evidence": []}]  # fmt: skip
    for form in forms:
        assert ENV.read_answer(json.dumps(form), task) is None


def test_the_rewards_read_what_no_schema_checked():
    reward, evidence = LiteratureAnswerReward(), EvidenceReward()
    task = find_tasks(True)[0]
    for said in ([], {}, True, float("nan"), "9" * 100_000, ["yes"], {"answer": "yes"}, b"yes"):
        assert reward({"answer": said}, {"answer": "yes", "kind": "number", "unit": "mg"}) in (0.0, 1.0)
    episode = play(task, lambda a: (a.right, a.gold))
    for cited in (None, "", {}, {"a": 1}, [[1]], [None] * 9, [float("inf")], "9" * 100_000, [True]):
        answered = replace(episode, answer=FrozenDict({"answer": "yes", "evidence": cited}))
        assert 0.0 <= evidence.of_episode(answered) < 1.0
        assert evidence.explain_episode(answered)


# ---------------------------------------------------------------------- whole policies without a search
CONSTANT = [
    ("always unknown", lambda task: UNKNOWN, 0.1),
    ("always yes", lambda task: "yes", 0.05),
    ("always the first choice", lambda task: "A", 0.05),
    ("always the same number", lambda task: 30, 0.02),
    ("the right answer by heart", lambda task: ENV.plan(task).answer, CAP),
]


@each(("name", "answer", "most"), CONSTANT)
def test_without_a_search_no_policy_earns_more_than_the_cap(name, answer, most):
    totals = []
    for task in ENV.tasks[:70]:
        said = ENV.read_answer(reply(answer(task), list(ENV.plan(task).fact.evidence)), task)
        episode = Episode(task, answer=said, end_reason="answered", terminated=True)
        totals.append(ENV.score(episode).total or 0.0)
    assert sum(totals) / len(totals) <= most


def test_there_are_more_than_thirty_rows_and_every_row_says_why():
    rows = [*CITED, *NOT_SEARCHED, *ANSWERED, *GIVEN_UP]
    assert len(rows) > 60
    assert all(row[-1] for row in rows)
