"""`literature_vqa` through the driver, `viewbox rollout` with its companions, and scores from the record."""

import json

import pytest

from tests.support import verifiers_server as scripted
from tests.support.front_doors import map_overviews, play_right_answers, roll_out
from tests.support.servers import make_completion
from viewbox import make
from viewbox.envs.literature_vqa.world import write_query

SETTINGS = {"questions": ["therapy", "shows", "class"], "split": "test", "num_tasks": 3, "coordinates": "per_mille"}
ENV = make("literature_vqa", **SETTINGS)


TASKS = map_overviews(ENV)


def test_the_driver_plays_many_at_once_and_each_gets_its_own_scores():
    episodes = play_right_answers("literature_vqa", tasks=14, group=3)
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
        opened, zoomed = json.dumps({"image": "image_3"}), json.dumps({"factor": 2})
        return make_completion("", ("c", "open_image", opened), ("d", "zoom", zoomed))
    return make_completion(ENV.write_answer(task))


def test_rollout_against_an_endpoint_both_pages_and_scores_from_the_record(viewbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = {"name": "literature_vqa", **SETTINGS}
    episodes, _ = roll_out(viewbox, tmp_path, env, searches_then_answers)
    for episode in episodes:
        names = [one.tool_name for turn in episode.turns for one in turn.tool_results if one.success]
        assert names == ["search_web", "search_images", "open_image", "zoom"]
        assert episode.scores.total == pytest.approx(1.0)
        assert ENV.score(episode) == episode.scores
