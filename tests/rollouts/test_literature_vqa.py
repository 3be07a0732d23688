"""`literature_vqa` through the driver, `viewbox rollout` with its companions, and scores from the record."""

import asyncio
import json

import pytest
from PIL import Image

from tests.support import verifiers_server as scripted
from tests.support.digits_play import Says
from tests.support.servers import make_completion, serve
from viewbox import make
from viewbox.envs.literature_vqa.sentences import write_query
from viewbox.envs.messages import to_openai_messages
from viewbox.rollouts.play import play_many
from viewbox.rollouts.store.reader import load

SETTINGS = {"questions": ["therapy", "shows", "class"], "split": "test", "num_tasks": 3, "coordinates": "per_mille"}
ENV = make("literature_vqa", **SETTINGS)


def get_overview(task):
    return scripted.get_first_image(to_openai_messages(ENV.reset(task, seed=0).messages))


TASKS = {get_overview(task): task for task in ENV.tasks}


def test_the_driver_plays_many_at_once_and_each_gets_its_own_scores():
    env = make("literature_vqa", num_tasks=14)
    scripts = {task.id: [*env.oracle(task), env.write_answer(task)] for task in env.tasks}

    def reply(conversation):
        said = sum(message.role == "assistant" for message in conversation.messages)
        return scripts[conversation.task.id][said]

    async def run():
        return [one async for one in play_many(env, env.tasks, Says(reply), group=3, concurrency=16)]

    episodes = asyncio.run(run())
    assert len(episodes) == 42
    assert {episode.end_reason for episode in episodes} == {"answered"}
    assert min(episode.scores.total for episode in episodes) == pytest.approx(1.0)
    texts = {}
    for episode in episodes:  # the same search says the same in every episode
        texts.setdefault(episode.task.id, set()).add(episode.turns[2].tool_results[0].text)
    assert all(len(said) == 1 for said in texts.values())


def searches_then_answers(body, number):
    """Both searches in one reply, then a found figure, then the right answer."""
    task = TASKS[scripted.get_first_image(body["messages"])]
    case, turn = ENV.plan(task), sum(message["role"] == "assistant" for message in body["messages"])
    if turn == 0:
        web = json.dumps({"query": write_query(case.fact)})
        figures = json.dumps({"query": "film of a patient", "max_results": 2})
        return make_completion("", ("a", "search_web", web), ("b", "search_images", figures))
    if turn == 1:
        opened, zoomed = json.dumps({"index": 2}), json.dumps({"factor": 2})
        return make_completion("", ("c", "open_image", opened), ("d", "zoom", zoomed))
    return make_completion(ENV.write_answer(task))


def test_rollout_against_an_endpoint_preview_picture_and_scores_from_the_record(viewbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "literature.yaml"
    raw = {"model": {"name": "package:tiny_viewer"}, "env": {"name": "literature_vqa", **SETTINGS}}
    config.write_text(json.dumps(raw))
    with serve(searches_then_answers) as server:
        code, out, err = viewbox(
            "rollout", "--config", config, "--tasks", 3, "--endpoint", server.url, "--model", "m", "--out", "run"
        )
    assert code == 0, out + err
    episodes = list(load(tmp_path / "run"))
    assert len(episodes) == 3
    for episode in episodes:
        names = [one.tool_name for turn in episode.turns for one in turn.tool_results if one.success]
        assert names == ["search_web", "search_images", "open_image", "zoom"]
        assert episode.scores.total == pytest.approx(1.0)
        assert ENV.score(episode) == episode.scores
    code, out, err = viewbox("score", "run")
    assert code == 0, out + err
    assert viewbox("picture", "run#2", "--out", "episode.png")[0] == 0
    with Image.open(tmp_path / "episode.png") as picture:
        assert min(picture.size) > 200
    code, out, err = viewbox("preview", config, "--tasks", 3)
    assert code == 0, out + err
    assert "right answer" in out
