"""`chest_xray`, `literature_vqa`, `software_adviser`: the driver, `viewbox rollout` with its companions, verifiers."""

import json

import pytest

from tests.support import verifiers_server as scripted
from tests.support.front_doors import evaluate_package, map_overviews, play_right_answers, roll_out
from tests.support.publishing import leave_out_check
from tests.support.servers import make_completion
from viewbox import make
from viewbox.envs.literature_vqa.world import write_query as write_literature_query
from viewbox.envs.software_adviser.demonstrations import write_query
from viewbox.publish import publish

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
    episodes, shown = roll_out(viewbox, tmp_path, env, answer)
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


def test_the_driver_plays_many_at_once_and_each_gets_its_own_scores():
    episodes = play_right_answers("literature_vqa", tasks=14, group=3)
    assert min(episode.scores.total for episode in episodes) == pytest.approx(1.0)
    texts = {}
    for episode in episodes:  # the same search says the same in every episode
        texts.setdefault(episode.task.id, set()).add(episode.turns[2].tool_results[0].text)
    assert all(len(said) == 1 for said in texts.values())


@pytest.mark.slow
def test_the_published_package_is_played_by_verifiers(tmp_path, monkeypatch):
    package, env = tmp_path / "out", ENVS["chest_xray"]
    leave_out_check(monkeypatch)  # verifiers tries it below
    publish("chest_xray", package, settings=CHEST)
    look = scripted.make_reply("", ("a", "zoom", json.dumps({"factor": 2, "center": [500, 500]})))
    answers = {overview: env.write_answer(task) for overview, task in TASKS["chest_xray"].items()}
    scripts = {overview: [look, scripted.make_reply(answer)] for overview, answer in answers.items()}
    evaluate_package(package, "viewbox-chest-xray", scripts, tmp_path)
