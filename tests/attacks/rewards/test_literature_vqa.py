"""What a policy would try in `literature_vqa`: citing without knowing, knowing without citing, giving up, and so on."""

import json
from functools import cache

import pytest
from msgspec.structs import replace

from tests.support.replies import call, list_results
from tests.support.tables import each
from tests.test_benchmarks import load
from viewbox import make
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.literature_vqa.env import LiteratureAnswerReward
from viewbox.envs.literature_vqa.world import UNKNOWN, write_query
from viewbox.records import Episode
from viewbox.rewards.evidence import EvidenceReward
from viewbox.utils.frozen import FrozenDict, freeze

ENV = make("literature_vqa", boundary=False)
ARTICLES = load("literature_world").write_articles()
ANSWER, CAP = 0.35, 0.35 + 1e-9  # what a right answer earns that cites nothing


def reply(answer, evidence):
    return json.dumps({"answer": answer, "evidence": evidence, "continue": False})


@cache
def find_tasks(answerable, status=None, count=5):
    """Tasks of all kinds of questions, with or without an answer."""
    return [task for task in ENV.tasks[:260]
            if (task.reference["answer"] != UNKNOWN) == answerable and status in (None,
                task.metadata["status"])][:count]  # fmt: skip


class Try:
    """What a policy knows at its last turn: the task, its case, and what its last search returned."""

    def __init__(self, task, results=()):
        found = [result for result in results if result.facts.get("pmids")]
        self.returned, self.text = (list(found[-1].facts["pmids"]), found[-1].text) if found else ([], "")
        self.task, self.case, self.fact = task, ENV.plan(task), ENV.plan(task).fact
        self.gold, self.right = list(task.reference["evidence"]), self.case.answer
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


def play(task, *said, looks=lambda a: [a.search()]):
    """The episode of some looks and an answer, by default the right one, and what the policy knew at its end."""
    attempt = Try(task)
    answer = reply(*(said or (attempt.right, attempt.gold)))
    episode = ENV.play(task, ScriptedPolicy([*looks(attempt), answer]))
    return episode, Try(task, list_results(episode))


def score(episode, answer, evidence):
    """What the episode earns if it ends with another answer."""
    said = ENV.read_answer(reply(answer, evidence), episode.task)
    changed = replace(episode, answer=None if said is None else freeze(said), scores=None)
    return 0.0 if said is None else ENV.score(changed).total


@cache
def attempts(answerable, status=None, count=2):
    tasks = find_tasks(answerable, status, count)
    assert tasks
    return [play(task) for task in tasks]


def no_look(attempt):
    return []


IDS = [str(990000001 + n) for n in range(318)]


def cite(a):
    """(evidence, at most) of a right answer; CAP: nothing of it counts as evidence."""
    nothing = [
        [], ["990009999"], [f"{one} supports it" for one in a.gold], [f"see PMID {one}" for one in a.gold],
        [f"{a.gold[0]}, {a.gold[-1]}"], [" ".join(a.returned)], ["990000001-990000318"], [1, 2, 3], ["[1]", "[2]"],
        [f"https://literature.invalid/{one}" for one in a.gold], [f"doi:10.0000/invented.{one}" for one in a.gold],
        [a.text.split("Title: ")[1][:40]], [f"0{one}" for one in a.gold],
        ["".join(chr(ord(c) + 0xFEE0) for c in one) for one in a.gold], [-int(one) for one in a.gold], a.reviews,
    ]  # fmt: skip
    diluted = [(a.returned, 0.63), ([*a.gold, *a.returned], 0.63), (IDS[:20], 0.5), ([*a.gold, *IDS[:18]], 0.5)]
    return [*((evidence, CAP) for evidence in nothing), *diluted]


CITED = {  # by the status of the task
    None: cite, "known": lambda a: [(a.gold + a.reviews, 0.79)],
    "disputed": lambda a: [(a.gold + a.retracted, CAP), (a.retracted, CAP)],
        "revised": lambda a: [(a.gold + a.old, 0.79), (a.old, CAP)],
    "confirmed": lambda a: [(a.gold[:1], 0.79), (a.gold[:1] * 9, 0.79)],
}  # fmt: skip


@each("status", list(CITED))
def test_a_right_answer_with_other_citations_earns_less_than_with_the_right_ones(status):
    for episode, attempt in attempts(True, status):
        assert episode.scores.total == pytest.approx(1.0)
        assert ENV.score(episode) == episode.scores  # from the record alone
        for evidence, most in CITED[status](attempt):
            assert ANSWER - 1e-9 <= score(episode, attempt.right, evidence) <= most, evidence


@each("looks", [
    no_look, lambda a: [call("search_web", query="noise of a scanner")], lambda a: [call("search_web", query="")],
    lambda a: [call("zoom", factor=2)], lambda a: [call("search_web", query=" ".join(a.gold))],
])  # fmt: skip
def test_an_id_counts_only_if_a_tool_of_this_episode_returned_it(looks):
    for task in find_tasks(True, None, 7):
        assert play(task, looks=looks)[0].scores.total == pytest.approx(ANSWER)


def mistake(a):
    """Wrong, given up, both ways, hedged, denied, not of its form, copied: nothing that is the answer."""
    choices = a.case.choices or ("yes", "no", a.right, a.wrong)
    return [
        a.wrong, UNKNOWN, " ".join(map(str, choices)), "A B C D", "yes, no", f"{a.right} or {a.wrong}",
        f"probably {a.right}", f"not {a.right}", f"{a.right} / {UNKNOWN}", "0-1000", " ".join(map(str, range(400))),
        f"{a.right} kg", a.text, a.case.question, a.fact.topic.name, str([a.right, a.wrong]), a.gold[0], " ",
    ]  # fmt: skip


@each("status, wrong", [(None, mistake), ("revised", lambda a: [a.outdated]), ("disputed", lambda a: [a.outdated])])
def test_a_wrong_answer_earns_nothing_however_well_it_cites(status, wrong):
    for episode, attempt in attempts(True, status, 4):
        for answer in wrong(attempt):
            assert score(episode, answer, attempt.gold) == 0.0, answer


def give_up(a):
    """(answer, evidence, at most) where no article supports an answer."""
    return [
        (UNKNOWN, [], 1.0), *((UNKNOWN, evidence, CAP) for evidence in (a.returned, ["1"], [""])),
            (a.outdated, a.retracted, 0.0),
        *((answer, [], 0.0) for answer in ("I cannot know", "", "none", f"{UNKNOWN}, or yes", "yes")),
    ]  # fmt: skip


NO_SEARCH = [
    no_look, lambda a: [call("search_web", query="noise")], lambda a: [call("zoom", factor=2)],
    lambda a: [call("search_web", query=a.fact.topic.name, max_results=99)],
]  # fmt: skip


def test_giving_up_pays_in_full_only_after_a_search_and_without_citations():
    for episode, attempt in attempts(False, None, 7):
        for answer, evidence, most in give_up(attempt):
            assert score(episode, answer, evidence) <= most + 1e-9, answer
        assert score(episode, UNKNOWN, []) == pytest.approx(1.0)
        for looks in NO_SEARCH:
            assert play(episode.task, UNKNOWN, [], looks=looks)[0].scores.total <= CAP


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
    episode, _ = play(task)
    for cited in (None, "", {}, {"a": 1}, [[1]], [None] * 9, [float("inf")], "9" * 100_000, [True]):
        answered = replace(episode, answer=FrozenDict({"answer": "yes", "evidence": cited}))
        assert 0.0 <= evidence.of_episode(answered) < 1.0
        assert evidence.explain_episode(answered)


# ---------------------------------------------------------------------- whole policies without a search
@each("answer, most", [(UNKNOWN, 0.1), ("yes", 0.05), ("A", 0.05), (30, 0.02), (None, CAP)])
def test_without_a_search_no_policy_earns_more_than_the_cap(answer, most):
    totals = []
    for task in ENV.tasks[:70]:
        said = ENV.read_answer(reply(answer or ENV.plan(task).answer, list(ENV.plan(task).fact.evidence)), task)
        episode = Episode(task, answer=said, end_reason="answered", terminated=True)
        totals.append(ENV.score(episode).total or 0.0)
    assert sum(totals) / len(totals) <= most
