"""`chest_xray`, `literature_vqa`, `software_adviser`: `viewbox rollout` with its companions."""

import json
from pathlib import Path

import pytest

from tests.support import verifiers_server as scripted
from tests.support.front_doors import map_overviews
from tests.support.servers import make_completion, serve
from viewbox import load, make
from viewbox.envs.literature_vqa.world import write_query as write_literature_query
from viewbox.envs.software_adviser.demonstrations import write_query

SAME = {"split": "test", "num_tasks": 3, "coordinates": "per_mille"}
CHEST = {"questions": ["which", "compare", "place"], **SAME}
ADVISER = {"split": "test", "num_tasks": 3, "ambiguous": 0.5, "unanswerable": 0, "first_seed": 1}
SETTINGS = {"chest_xray": CHEST, "literature_vqa": {"questions": ["therapy", "shows", "class"], **SAME},
    "software_adviser": ADVISER}  # fmt: skip
ENVS = {name: make(name, **settings) for name, settings in SETTINGS.items()}
TASKS = {name: map_overviews(env) for name, env in ENVS.items()}
SPECIALISTS = """
from viewbox.tools import Picture

def mean(image: Picture) -> dict:
    "Mean brightness."
    return {"mean": round(float(image.to_gray().mean()), 2)}
"""
LOOK = json.dumps({"factor": 2})


def write_calls(env, task):
    """A search by the facts and one for each name of the best answer, and the repositories, all in one reply."""
    names = [choice["name"] for choice in json.loads(env.write_answer(task))["choices"]]
    request = env.get_request(task)
    queries = [f"{name} {request.task} {request.modality} {request.dimensions}" for name in names]
    return [
        ("a", "search_tools", json.dumps({"query": write_query(request)})),
        *((f"b{n}", "search_alternative", json.dumps({"query": query})) for n, query in enumerate(queries)),
        ("c", "repo_info_batch", json.dumps({"urls": [env.software[name].repository for name in names]}))
    ]  # fmt: skip


def list_replies(name, task):
    """A question where a fact is hidden, all tools in one reply, a found figure where there is one, the answer."""
    env, image = ENVS[name], json.dumps({"image": "image_1"})
    if name == "chest_xray":
        calls = [[("a", "first", image), ("b", "second", image), ("c", "zoom", LOOK)]]
    elif name == "literature_vqa":
        web = json.dumps({"query": write_literature_query(env.plan(task).fact)})
        figures = json.dumps({"query": "film of a patient", "max_results": 2})
        opened = [("c", "open_image", json.dumps({"image": "image_3"})), ("d", "zoom", LOOK)]
        calls = [[("a", "search_web", web), ("b", "search_images", figures)], opened]
    else:
        calls = [write_calls(env, task)]
    asks = [reply for reply in env.oracle(task) if "needs_clarification" in reply]
    said = [*map(make_completion, asks), *(make_completion("", *made) for made in calls)]
    return [*said, make_completion(env.write_answer(task))]


USED = {"chest_xray": ["first", "second", "zoom"], "literature_vqa": ["search_web", "search_images", "open_image",
    "zoom"], "software_adviser": ["search_tools", "search_alternative", "repo_info_batch"]}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_rollout_against_an_endpoint_both_pages_and_scores_from_the_record(name, viewbox, tmp_path, monkeypatch):
    def answer(body, number):
        task = TASKS[name][scripted.get_first_image(body["messages"])]
        return list_replies(name, task)[sum(message["role"] == "assistant" for message in body["messages"])]

    monkeypatch.chdir(tmp_path)
    env = {"name": name, **SETTINGS[name]}
    if name == "chest_xray":
        (tmp_path / "mine.py").write_text(SPECIALISTS)
        tools = {tool: {"kind": "function", "function": f"{tmp_path}/mine.py:mean"} for tool in ("first", "second")}
        env |= {"specialists": tools, "tool_bonus": 0.1, "bearing": {"all": ["first"]}}
    Path("c.yaml").write_text(json.dumps({"model": {"name": "package:tiny_viewer"}, "env": env}))
    with serve(answer) as server:
        for words in (
            ("rollout", "--config", "c.yaml", "--tasks", 3, "--endpoint", server.url, "--model", "m", "--out", "r"),
            ("score", "r"), ("view", "r"), ("view", "c.yaml", "--tasks", 3, "--out", "tasks.html"),
        ):  # fmt: skip
            code, out, err = viewbox(*words)
            assert code == 0, out + err
    episodes, shown = list(load("r")), Path("tasks.html").read_text()
    assert (len(episodes), "right_answer" in shown) == (3, True)
    for episode in episodes:
        results = [result for turn in episode.turns for result in turn.tool_results if result.success]
        assert list(dict.fromkeys(result.tool_name for result in results)) == USED[name]
        assert episode.scores.total == pytest.approx(1.0)
        if name == "chest_xray":
            assert results[0].facts == results[1].facts
        else:
            assert ENVS[name].score(episode) == episode.scores
    if name == "chest_xray":
        assert "What has become of" in shown
        assert len(shown) > 20_000  # with its images
    if name == "software_adviser":
        assert any(ENVS[name].get_request(episode.task).hidden for episode in episodes)
