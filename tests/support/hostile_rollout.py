"""A rollout of five tasks whose server is hostile to one of them: everything that was sent, shown and stored.

The server is a real one on 127.0.0.1. It knows a task by the question, so retries of the hostile task meet the same
reply; every other task is answered.
"""

import asyncio
import io
import json
import logging
import re
import threading
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel
from rich.console import Console

from tests.support.servers import make_completion, serve
from viewbox.cli.command_builder import format_table
from viewbox.cli.figures import show_summary
from viewbox.cli.progress import Progress
from viewbox.configs.schema import Config
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.engines.models import Player
from viewbox.engines.openai.client import OpenAIGenerator
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.job import RolloutJob, open_session
from viewbox.rollouts.store.reader import load

TASKS = 5
HOSTILE = 2  # the task that gets the hostile reply
RIGHT = json.dumps({"label": "left"})
LONE = "\ud800"  # half a letter
# What acts on a terminal: C0 without tab and newline, DEL, C1, bidi marks, line separators; and lone surrogates.
ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def call(arguments="{}", name="search", identity="c1", **more):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def reply(message=None, finish="stop", **more):
    """A completion whose parts may be anything."""
    message = {"role": "assistant", "content": ""} if message is None else message
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}


def calling(*calls, content=None):
    return reply({"role": "assistant", "content": content, "tool_calls": list(calls)})


def nest(depth, kind="list"):
    value = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


class Finding(BaseModel):
    label: str


async def search(query: str) -> str:
    """Finds things."""
    return f"nothing is known of {query}"


class Ward(BaseMultiTurnEnv):
    """Text alone; the question names the task."""

    name = "ward"
    answer: ClassVar = Finding
    tools = (search,)
    max_turns: int = 4

    def default_reward(self):
        return ExactMatchReward("label")


@dataclass
class Outcome:
    """What a rollout left behind: episodes by index, requests of the hostile task, and all that was shown or logged."""

    episodes: dict
    requests: list
    shown: str
    logged: str
    stored: bytes
    summary: dict

    @property
    def hostile(self):
        return self.episodes[HOSTILE]


def make_tasks(count=TASKS, question="task {}?"):
    return [Task(f"t{i}", prompt={"question": question.format(i)}, reference={"label": "left"}) for i in range(count)]


def find_task(body):
    """The number of the task that a request is about."""
    text = json.dumps(body["messages"])
    return int(re.search(r"task (\d+)\?", text)[1])


def play_hostile(
    folder, *replies, table=None, tasks=TASKS, hostile=(HOSTILE,), env=None, generator=None, timeout=10.0, **settings
):
    """Plays the tasks; the hostile ones get `replies` (or those of `table`, by task) in turn, then the right answer."""
    table = table or dict.fromkeys(hostile, replies)
    asked = dict.fromkeys(table, 0)
    served = threading.Event()  # some other task has its reply: before the first, a refusal rightly ends the run

    def answer(body, number):
        task = find_task(body)
        if task in asked and len(asked) < tasks:
            served.wait(20)
        if task not in asked or asked[task] >= len(table[task]):
            return make_completion(RIGHT, usage={"prompt_tokens": 10, "completion_tokens": 5})
        asked[task] += 1
        return table[task][asked[task] - 1]

    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("viewbox")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        with serve(answer) as server:
            player = (generator or make_generator)(server.url, **settings)
            reply_once = player.reply

            async def announce(conversation):
                found = await reply_once(conversation)
                served.set()
                return found

            player.reply = announce
            job = RolloutJob(
                config=Config.model_validate({"model": {"name": "m"}, "env": {"name": "ward"}}),
                env=env or Ward(reply_format="native"),
                tasks=make_tasks(tasks),
                player=Player(lambda: player, tasks, timeout),
            )
            console = Console(file=io.StringIO(), width=120)
            progress = Progress(tasks, console, get_load=getattr(player, "get_load", None))
            with open_session(job, folder) as session:
                asyncio.run(_play(session, progress))
                console.print(progress.render_line(), markup=False)
                summary = session.write_summary()
            for block in show_summary(summary):
                console.file.write(f"{block}\n" if isinstance(block, str) else "\n".join([*format_table(block), ""]))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    requests = [one for one in server.requests if find_task(one["body"]) in table]
    episodes = {episode.info["index"]: episode for episode in load(folder / "episodes")}
    stored = (folder / "episodes" / "episodes.jsonl").read_bytes()
    return Outcome(episodes, requests, console.file.getvalue(), handler.stream.getvalue(), stored, summary)


async def _play(session, progress):
    with progress.show():
        async with aclosing(session.play()) as episodes:
            async for episode in episodes:
                progress.add(episode)


def make_generator(url, **settings):
    return OpenAIGenerator(url, "m", **{"first_pause": 0.001, "attempts": 2} | settings)


def check_outcome(outcome, count=TASKS, hostile=(HOSTILE,)):
    """Every episode is stored and can be read; the others were answered; nothing acts on a terminal."""
    assert sorted(outcome.episodes) == list(range(count))
    for index, episode in outcome.episodes.items():
        if index not in hostile:
            assert (episode.end_reason, episode.scores.total) == ("answered", 1.0)
        if episode.end_reason == "error":
            assert episode.info["error"]
    text = outcome.stored.decode("utf-8")  # strictly
    for line in text.splitlines():
        json.loads(line)
    for name, written in (("shown", outcome.shown), ("logged", outcome.logged)):
        assert not ACTIVE.search(written), (name, ACTIVE.search(written))
    assert len(outcome.stored) < len(hostile) * 1_000_000
    for request in outcome.requests:
        assert len(json.dumps(request["body"])) < 1_000_000
        assert "Cookie" not in request["headers"]
