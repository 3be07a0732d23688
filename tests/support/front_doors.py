"""What the tests of an environment do at each front door: the driver, `viewbox rollout`, verifiers."""

import asyncio
import json
import sys

from tests.support import verifiers_server as scripted
from tests.support.digits_play import Says
from tests.support.servers import serve
from tests.support.verifiers_command import read_traces, run_command
from viewbox import make
from viewbox.core.messages import to_openai_messages
from viewbox.rollouts.play import play_many
from viewbox.rollouts.store.reader import load


def map_overviews(env):
    """The tasks of an environment by their first image, by which a server tells conversations apart."""
    return {scripted.get_first_image(to_openai_messages(env.reset(task, seed=0).messages)): task for task in env.tasks}


def play_right_answers(name, tasks, group):
    """The episodes of the oracle with the right answers, 16 at once, with `group` of each task."""
    env = make(name, num_tasks=tasks)
    scripts = {task.id: [*env.oracle(task), env.write_answer(task)] for task in env.tasks}

    def reply(conversation):
        said = sum(message.role == "assistant" for message in conversation.messages)
        return scripts[conversation.task.id][said]

    async def run():
        return [one async for one in play_many(env, env.tasks, Says(reply), group=group, concurrency=16)]

    episodes = asyncio.run(run())
    assert len(episodes) == tasks * group
    assert {episode.end_reason for episode in episodes} == {"answered"}
    return episodes


def roll_out(viewbox, folder, env, answer):
    """Plays three tasks against an endpoint, then scores and shows them.

    Args:
        viewbox: the fixture that runs a command.
        folder: the folder to work in, which is the current one.
        env: the config's section `env`.
        answer: the endpoint's replies, as `serve` takes them.

    Returns:
        (episodes, the page of `viewbox view CONFIG`)
    """
    config = folder / "config.yaml"
    config.write_text(json.dumps({"model": {"name": "package:tiny_viewer"}, "env": env}))

    def run(*given):
        code, out, err = viewbox(*given)
        assert code == 0, out + err
        return out

    with serve(answer) as server:
        run("rollout", "--config", config, "--tasks", 3, "--endpoint", server.url, "--model", "m", "--out", "run")
    run("score", "run")
    run("view", "run")
    run("view", config, "--tasks", 3, "--out", "tasks.html")
    shown = (folder / "tasks.html").read_text()
    assert "right_answer" in shown
    episodes = list(load(folder / "run"))
    assert len(episodes) == 3
    return episodes, shown


def evaluate_package(package, name, scripts, folder):
    """verifiers plays three tasks of a published package with scripted replies, and gives each the full reward.

    Args:
        package: the folder that `viewbox publish` wrote.
        name: the id of the package.
        scripts: the replies by the overview of their task.
        folder: an empty folder to work in.
    """
    with scripted.serve(scripts) as server:
        given = ["--model", "scripted", "--client.base-url", server.url, "--no-push", "--no-rich", "-n", "3", "-o", "e"]
        run_command("vf-eval", name, *given, path=package, cwd=folder)
    traces = read_traces(folder / "e")
    assert [trace["stop_condition"] for trace in traces] == ["answered"] * 3
    assert all(trace["rewards"]["total"]["score"] > 0.99 for trace in traces)
    sys.modules.pop(name.replace("-", "_"), None)
