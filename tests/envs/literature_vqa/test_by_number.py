"""With `by_number` an answer cites articles by their number in the last search."""

import json

import viewbox
from viewbox.core.messages import write_call
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.literature_vqa.world import write_query


def play(cited, **settings):
    env = viewbox.make("literature_vqa", questions=["limit"], unanswerable=0, tools=[], max_pixels=1024, **settings)
    task = next(one for one in env.tasks[:50] if env.plan(one).fact.status == "known")
    case = env.plan(task)
    call = write_call("search_web", {"query": write_query(case.fact)})
    policy = ScriptedPolicy([call, json.dumps({"answer": case.answer, "evidence": cited, "continue": False})])
    episode = env.play(task, policy)
    found = episode.turns[2].tool_results[0].facts["pmids"]
    return episode, found.index(case.evidence[0]) + 1


def test_a_number_is_the_article_of_the_last_search_and_counts_only_if_it_was_asked_for():
    _, number = play(["1"], by_number=True)
    right, _ = play([number], by_number=True)
    assert (right.scores.total, right.answer["evidence"][0]) == (1.0, right.task.reference["evidence"][0])
    for cited, settings in ((["9"], {"by_number": True}), ([f"{number}"], {})):
        wrong, _ = play(cited, **settings)
        assert wrong.scores.total == 0.35
