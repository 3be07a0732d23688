"""What an answer cites: `evidence` of `vqa`, `report` and `ask`, numbers of a search, questions that need no search."""

import json

import pytest

from tests.support.data_kit import write_jsonl
from tests.support.replies import call, list_results, play
from tests.support.small_literature import SmallLiterature
from tests.support.tables import each
from viewbox import Task, make
from viewbox.envs.literature_vqa.world import write_query
from viewbox.errors import ConfigError
from viewbox.rewards.evidence import check_citations
from viewbox.rollouts.ask import Answer
from viewbox.rollouts.scoring.saved_run import make_environment
from viewbox.tools.search.records import Article
from viewbox.tools.search.tools import LiteratureSpecialist

FOUND = SmallLiterature(
    [
        Article("11", "Aspirin in migraine: a trial", "J", 2020, "Migraine was relieved by aspirin within two hours."),
        Article("12", "Sleep of nurses", "J", 2020, "Nurses who work at night sleep less."),
        Article("13", "Aspirin for migraine attacks", "J", 2021, "Aspirin relieved migraine.", retracted=True),
    ]
)
SEARCH = {"search": {"kind": "literature", "snapshot": "package:literature"}}
QUESTION = "Which drug relieves migraine within two hours?"


@pytest.fixture(autouse=True)
def literature(monkeypatch):
    monkeypatch.setattr(LiteratureSpecialist, "open_source", lambda self: FOUND)


def cite(env, task, *pmids, searches=True, **answer):
    looks = [call("search_web", query="aspirin migraine nurses")] if searches else []
    return play(env, task, *looks, json.dumps({**answer, "evidence": pmids, "continue": False}))


# what is cited, the right answer, the evidence that the task knows, and the score of what is cited
@each(
    ("pmids", "right", "known", "score"),
    [
        (["11"], "aspirin", None, 1.0),
        (["PMID: 11"], "aspirin", None, 1.0),
        (["11", "12"], "aspirin", None, 0.5),  # the second is about something else
        (["12"], "aspirin", None, 0.0),
        (["11", "99"], "aspirin", None, 0.5),  # nobody returned the second
        ([], "aspirin", None, 0.0),
        (["11", "13"], "aspirin", None, 0.0),  # a retracted one
        (["11"], "yes", None, 1.0),  # bears on the question
        (["12"], "yes", None, 0.0),
        (["11"], "aspirin", ["11"], 1.0),
        (["12"], "aspirin", ["11"], 0.0),
        (["11", "12"], "aspirin", [11], 2 / 3),
    ],
)
def test_what_is_cited_counts_if_it_was_returned_and_bears_on_the_answer(pmids, right, known, score):
    env = make("vqa", tools=[], evidence=True, specialists=SEARCH)
    reference = {"answer": right, "kind": "open", **({"evidence": known} if known else {})}
    task = Task("a", prompt={"question": QUESTION}, reference=reference)
    scores = cite(env, task, *pmids, answer=right).scores
    assert scores.components["evidence"] == pytest.approx(score)
    assert scores.total == pytest.approx(0.7 + 0.3 * score)
    assert cite(env, task, *pmids, answer=right, searches=False).scores.total == pytest.approx(0.7)
    assert cite(env, task, *pmids, answer="wrong").scores.total == 0.0


def test_a_search_that_finds_nothing_is_no_evidence_and_no_fault(monkeypatch):
    monkeypatch.setattr(LiteratureSpecialist, "open_source", lambda self: SmallLiterature([]))
    env = make("vqa", tools=[], evidence=True, specialists=SEARCH)
    task = Task("a", prompt={"question": QUESTION}, reference={"answer": "aspirin", "kind": "open"})
    for pmids in (["11"], []):
        scores = cite(env, task, *pmids, answer="aspirin").scores
        assert (scores.components["evidence"], scores.faults) == (0.0, {})


def test_a_report_cites_too_and_both_refuse_what_nothing_finds(tmp_path):
    rows = write_jsonl(tmp_path / "a.jsonl", [{"image": "a.png", "text": "Migraine relieved by aspirin.", "pmid": 11}])
    data = {"source": str(rows), "columns": {"image": "image", "report": "text", "evidence": "pmid"}}
    cells = {**data, "columns": {"image": "image", "question": "text", "answer": "text", "evidence": "pmid"}}
    env = make("report", tools=[], evidence=True, specialists=SEARCH, data=data)
    assert '"evidence"' in env.build_system_prompt(Task("a"))
    task = Task("a", reference={"report": "Migraine relieved by aspirin.", "evidence": [11]})
    said = env.perfect_answer(task)
    assert said == {"report": "Migraine relieved by aspirin.", "evidence": [11]}
    assert cite(env, task, *said["evidence"], report=said["report"]).scores.total == pytest.approx(1.0)
    assert cite(env, task, report=said["report"]).scores.total == pytest.approx(0.7)
    for name, settings, problem in (
        ("vqa", {"evidence": True}, "no tool finds articles; allowed: with a specialist of kind: literature"),
        ("report", {"data": data}, "data.columns.evidence: report cites nothing; allowed: with evidence: true"),
        ("chest_xray", {"evidence": True}, "unknown setting 'evidence'"),
        ("chest_xray", {"data": cells}, "data.columns.evidence: chest_xray cites nothing"),
    ):
        with pytest.raises(ConfigError, match=problem):
            _ = (env := make(name, **settings)).answer, env.tasks
    with pytest.raises(ConfigError, match="no tool finds articles"):  # what somebody asks of their own
        make("vqa", evidence=True).prepare()


def test_a_stored_run_is_scored_on_its_citations_though_scoring_has_no_tools_and_no_file_of_facts():
    env = make("vqa", tools=[], evidence=True, specialists=SEARCH)
    task = Task("a", prompt={"question": QUESTION}, reference={"answer": "aspirin"})
    episode = cite(env, task, "11", answer="aspirin")
    stored = make_environment("vqa", {"evidence": True, "specialists": SEARCH}, "config.yaml")
    assert stored.reward.score_episode(episode) == episode.scores
    assert episode.scores.total == pytest.approx(1.0)
    assert make_environment("literature_vqa", {"facts": "facts.jsonl"}, "config.yaml").facts is None


def test_a_person_is_told_what_was_found_of_each_citation():
    env = make("vqa", tools=[], evidence=True, specialists=SEARCH)
    episode = cite(env, Task("a", prompt={"question": QUESTION}), "11", "12", "13", "99", answer="aspirin")
    told = {"11": "bears on the answer", "12": "does not bear on the answer", "13": "retracted", "99": "not returned"}
    assert Answer(episode).evidence == check_citations(episode, {"answer": "aspirin"}) == told
    assert "99: not returned" in str(Answer(episode))


# ---------------------------------------------------------------------- `literature_vqa`
def test_a_number_is_the_article_of_the_last_search_and_counts_only_if_it_was_asked_for(monkeypatch):
    monkeypatch.undo()

    def run(cited, **settings):
        env = make("literature_vqa", questions=["limit"], unanswerable=0, tools=[], max_pixels=1024, **settings)
        task = next(one for one in env.tasks[:50] if env.plan(one).fact.status == "known")
        case = env.plan(task)
        look = call("search_web", query=write_query(case.fact))
        episode = play(env, task, look, json.dumps({"answer": case.answer, "evidence": cited, "continue": False}))
        return episode, list_results(episode)[0].facts["pmids"].index(case.evidence[0]) + 1

    _, number = run(["1"], by_number=True)
    right, _ = run([number], by_number=True)
    assert (right.scores.total, right.answer["evidence"][0]) == (1.0, right.task.reference["evidence"][0])
    for cited, settings in ((["9"], {"by_number": True}), ([f"{number}"], {})):
        assert run(cited, **settings)[0].scores.total == 0.35


def test_a_question_that_says_its_answer_needs_no_search_and_pays_none(monkeypatch):
    monkeypatch.undo()
    env = make("literature_vqa", questions=["limit", "therapy", "shows"], told=0.5, unanswerable=0.2)
    tasks = env.tasks[:90]
    told = [task for task in tasks if task.reference["category"] == "told"]
    assert 15 < len(told) < 35
    assert not any(task.metadata["question"] == "shows" for task in told)  # it needs the picture
    for task in told[:8]:
        assert str(task.reference["answer"]) in task.prompt["question"]
        assert env.oracle(task) == ()
        assert play(env, task, env.write_answer(task)).scores.total == 1.0
        look = call("search_web", query=write_query(env.plan(task).fact))
        assert play(env, task, look, env.write_answer(task)).scores.total == 0.35
