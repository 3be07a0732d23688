"""`software_adviser` through the front doors: the driver, `viewbox rollout` with its companions, verifiers."""

import json

import pytest

from tests.support import verifiers_server as scripted
from tests.support.front_doors import map_overviews, roll_out
from tests.support.servers import make_completion
from viewbox import make
from viewbox.envs.software_adviser.demonstrations import write_query
from viewbox.errors import ConfigError
from viewbox.publish import publish

SETTINGS = {"split": "test", "num_tasks": 3, "ambiguous": 0.5, "unanswerable": 0, "first_seed": 1}
ENV = make("software_adviser", **SETTINGS)


TASKS = map_overviews(ENV)


def write_calls(task):
    """A search by the facts and one for each name of the best answer, and the repositories, all in one reply."""
    names = [choice["name"] for choice in json.loads(ENV.write_answer(task))["choices"]]
    request = ENV.get_request(task)
    queries = [f"{name} {request.task} {request.modality} {request.dimensions}" for name in names]
    urls = [ENV.software[name].repository for name in names]
    return [
        ("a", "search_tools", json.dumps({"query": write_query(request)})),
        *((f"b{n}", "search_alternative", json.dumps({"query": query})) for n, query in enumerate(queries)),
        ("c", "repo_info_batch", json.dumps({"urls": urls})),
    ]


def asks_searches_and_answers(body, number):
    """A question where a fact is hidden, then all tools in one reply, then the right answer."""
    task = TASKS[scripted.get_first_image(body["messages"])]
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    asks = [reply for reply in ENV.oracle(task) if "needs_clarification" in reply]
    if turn < len(asks):
        return make_completion(asks[turn])
    if turn == len(asks):
        return make_completion("", *write_calls(task))
    return make_completion(ENV.write_answer(task))


def test_rollout_against_an_endpoint_both_pages_and_scores_from_the_record(viewbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = {"name": "software_adviser", **SETTINGS}
    episodes, _ = roll_out(viewbox, tmp_path, env, asks_searches_and_answers)
    assert any(ENV.get_request(episode.task).hidden for episode in episodes)
    for episode in episodes:
        assert {"search_tools", "search_alternative", "repo_info_batch"} == episode.tools_used()
        assert episode.scores.total == pytest.approx(1.0)
        assert ENV.score(episode) == episode.scores


def test_a_file_of_this_machine_is_not_published(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(f"{one.model_dump_json()}\n" for one in list(ENV.software.values())[:120]))
    with pytest.raises(ConfigError, match=r"catalogue.*: a file of this machine, which no package carries"):
        publish("software_adviser", tmp_path / "out", settings={**SETTINGS, "catalogue": str(file)})
