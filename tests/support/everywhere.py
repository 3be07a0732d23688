"""Scripted episodes of one environment, played through every adapter, in a form in which they can be compared.

A play is what the model was sent in its last request and its last reply, the end reason, and the scores.
"""

import asyncio
import hashlib
import json
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from tests.support import verifiers_server as scripted
from tests.support.servers import serve_app
from viewbox.core.loop import shorten_reply
from viewbox.core.messages import EMPTY, to_openai_messages
from viewbox.engines.openai.client import OpenAIGenerator
from viewbox.envs import make
from viewbox.envs.digits import viewer
from viewbox.records import Reply
from viewbox.rollouts.play import play_many

SETTINGS = {"split": "test", "num_tasks": 20, "max_turns": 4}
FIND_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
FIND_RESPONSE = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)


def call(name="zoom", **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def right(env, number):
    return viewer.write_answer(env, env.tasks[number])


def look(env, number):
    return viewer.write_gold_look(env, env.tasks[number])


WRONG = '{"label": "one", "bbox": [0, 0, 400, 500], "continue": false}'
LONG = "I think. " * 9000  # longer than the parser reads
CUT = ('{"label": "tw', "length")
# What the model says to each task. A list that ends early goes on with the right answer.
SCRIPTS = {
    "answers right at once": lambda env, n: [right(env, n)],
    "looks, then answers right": lambda env, n: [look(env, n), right(env, n)],
    "looks twice": lambda env, n: [look(env, n), call(factor=2, center=[500, 500]), right(env, n)],
    "writes beside a call": lambda env, n: ["Let me see.\n" + look(env, n), right(env, n)],
    "calls twice in a reply": lambda env, n: [look(env, n) + "\n" + call(factor=2, center=[500, 500]), right(env, n)],
    "answers wrong": lambda env, n: [WRONG],
    "looks, then answers wrong": lambda env, n: [look(env, n), WRONG],
    "answers between words": lambda env, n: [f"It is this: {right(env, n)} ✓"],
    "leaves an argument out": lambda env, n: [call(center=[500, 500]), right(env, n)],
    "calls with a wrong type": lambda env, n: [call(factor="four", center=[500, 500]), right(env, n)],
    "looks outside": lambda env, n: [call(factor=4, center=[5000, 500]), call(factor=-1, center=[0, 0]), WRONG],
    "adds an argument": lambda env, n: [call(factor=2, center=[500, 500], angle=3), right(env, n)],
    "gives no JSON": lambda env, n: ["It is a one.", right(env, n)],
    "gives no JSON after a look": lambda env, n: [look(env, n), "It is a one."],
    "gives a box that is none": lambda env, n: ['{"label": "two", "bbox": [9, 9, 1, 1]}', right(env, n)],
    "is too long": lambda env, n: [LONG, right(env, n)],
    "is too long after a look": lambda env, n: [look(env, n), LONG + right(env, n)],
    "is cut off": lambda env, n: [CUT, right(env, n)],
    "never answers": lambda env, n: [look(env, n)] * 4,
    "fails and never answers": lambda env, n: [call(factor="four", center=[500, 500])] * 4,
}
# Only environments that ask again, and drivers that learn of every call, can play these.
MORE_SCRIPTS = {
    "calls a tool that does not exist": lambda env, n: [call("zom", factor=2), right(env, n)],
    "is malformed to the end": lambda env, n: ["no"] * 4,
    "keeps notes": lambda env, n: ['{"label": "one", "continue": true}', look(env, n), right(env, n)],
    "is empty": lambda env, n: ["", right(env, n)],
}
# For tasks with two images.
TWO_SCRIPTS = {
    "answers right, seeing both": SCRIPTS["answers right at once"],
    "opens the second": lambda env, n: [call("open_image", image="image_2"), right(env, n)],
    "zooms into both in a reply": lambda env, n: [
        "\n".join([look(env, n), call("open_image", image="image_2"), call(factor=2, center=[500, 500])]),
        right(env, n),
    ],
    "opens one that is not there": lambda env, n: [call("open_image", image="image_3"), right(env, n)],
}


def list_replies(env, script, number):
    """The four replies of a script, each (text, finish reason)."""
    said = script(env, number)
    said = (said + [right(env, number)] * 4)[:4]
    return [one if isinstance(one, tuple) else (one, "stop") for one in said]


@dataclass(frozen=True)
class Play:
    """One episode, for comparison."""

    messages: tuple
    end_reason: str
    total: float | None
    components: tuple

    @classmethod
    def of(cls, wire, end_reason, total, components):
        wire = cut_at_end(wire)
        last = shorten_reply(Reply(flatten(wire[-1]["content"]))).text  # no request repeats it, so nobody cut it
        said = simplify([*wire[:-1], wire[-1] | {"content": last}])
        return cls(said, end_reason, total, tuple(sorted(components.items())))


def cut_at_end(wire):
    """The messages up to the reply that ended the episode: TRL goes on to call tools, some show its last results."""
    told = [flatten(one.get("content")).startswith("The episode has ended") for one in wire]
    wire = wire[: told.index(True) if True in told else len(wire)]
    replies = [number for number, one in enumerate(wire) if one["role"] == "assistant"]
    return wire[: replies[-1] + 1]


def simplify(wire):
    """Chat messages as (role, text, calls): images by hash, calls and results of the text as native ones."""
    simple = []
    for message in wire:
        text = flatten(message.get("content"))
        if message["role"] == "assistant":
            calls = [(one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls") or ()]
            calls += [(one["name"], one["arguments"]) for one in map(json.loads, FIND_CALL.findall(text))]
            calls = [(name, json.loads(given) if isinstance(given, str) else given) for name, given in calls]
            simple.append(("assistant", FIND_CALL.sub("", text).strip(), json.dumps(calls)))
        elif "<tool_response>" in text:
            simple += [("tool", one, "") for one in FIND_RESPONSE.findall(text)]
        else:
            simple.append((message["role"], text, ""))
    return tuple(simple)


def flatten(content):
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(
        part["text"]
        if part["type"] == "text"
        else f"[{hashlib.sha256(part['image_url']['url'].encode()).hexdigest()[:12]}]"
        for part in content
    )


class Case:
    """An environment and a script for each of its tasks."""

    def __init__(self, names, environment="digits", **settings):
        self.settings = SETTINGS | {"num_tasks": len(names)} | settings
        self.environment, self.env = environment, make(environment, **self.settings)
        self.names = list(names)
        scripts = SCRIPTS | MORE_SCRIPTS | TWO_SCRIPTS
        self.replies = [list_replies(self.env, scripts[name], number) for number, name in enumerate(self.names)]

    def number_of(self, image):
        """The number of the task with this first image."""
        return self._images.index(image)

    @cached_property
    def _images(self):
        states = [self.env.reset(task, seed=0) for task in self.env.tasks]
        return [scripted.get_first_image(to_openai_messages(state.messages)) for state in states]

    @contextmanager
    def serve(self):
        """An OpenAI-compatible server on 127.0.0.1 that says the script of the conversation it is sent."""
        scripts = {}
        for image, replies in zip(self._images, self.replies, strict=True):
            scripts[image] = [scripted.make_reply(text, finish_reason=reason) for text, reason in replies]
        with scripted.serve(scripts) as server:
            yield server

    def read_requests(self, server):
        """By task number: the messages of the last request, and the reply to it."""
        found = {}
        for image, bodies in server.requests.items():
            number = self.number_of(image)
            last = max((body["messages"] for body in bodies), key=len)
            turn = sum(message["role"] == "assistant" for message in last)
            found[number] = [*last, {"role": "assistant", "content": self.replies[number][turn][0]}]
        return found


def play_driver(case, folder):
    async def gather(url):
        generator = OpenAIGenerator(url, "scripted", tool_images="tool")
        episodes = [one async for one in play_many(case.env, case.env.tasks, generator)]
        await generator.close()
        return episodes

    with case.serve() as server:
        episodes = asyncio.run(gather(server.url))
        wire = case.read_requests(server)
    return {
        one.info["index"]: Play.of(wire[one.info["index"]], one.end_reason, one.scores.total, one.scores.components)
        for one in episodes
    }


PACKAGE = """
from viewbox.integrations.verifiers import ViewboxEnv, ViewboxHarness, ViewboxTaskset

class Taskset(ViewboxTaskset):
    environment = {environment!r}
    settings = {settings!r}

__all__ = ["Taskset", "ViewboxEnv", "ViewboxHarness"]
"""


def play_verifiers(case, folder):
    from tests.support.verifiers_command import read_traces, run_command

    name = f"viewbox_everywhere_{case.env.name}_{case.env.max_malformed}"
    package = folder / "package"
    (package / name).mkdir(parents=True)
    (package / name / "__init__.py").write_text(PACKAGE.format(environment=case.environment, settings=case.settings))
    with case.serve() as server:
        given = [name.replace("_", "-"), "--model", "scripted", "--client.base-url", server.url]
        limits = ["--no-push", "--no-rich", "-n", len(case.names), "-o", folder / "out"]
        try:
            run_command("vf-eval", *given, *limits, path=package, cwd=folder)
        finally:
            sys.modules.pop(name, None)
        wire = {number: [_mark(message) for message in sent] for number, sent in case.read_requests(server).items()}
    plays = {}
    for trace in read_traces(folder / "out"):
        number = trace["task"]["data"]["number"]
        total = trace["rewards"]["total"]["score"]
        plays[number] = Play.of(wire[number], trace["stop_condition"], total, trace["metrics"])
    return plays


def play_gymnasium(case, folder):
    import gymnasium

    id_ = "viewbox.integrations.gymnasium:viewbox/digits-v0"
    env = gymnasium.make(id_, environment=case.environment, **case.settings)
    plays = {}
    for number, replies in enumerate(case.replies):
        _, info = env.reset(seed=number, options={"task": number})
        wire = [*info["messages"]]
        wire[0] = {**wire[0], "content": case.env.build_system_prompt(case.env.tasks[number])}  # it also teaches tools
        for text, _ in replies:
            _, reward, terminated, truncated, info = env.step(text)
            wire += info["messages"]
            if terminated or truncated:
                break
        assert reward == info["record"].scores.total
        plays[number] = Play.of(wire, info["end_reason"], reward, info["record"].scores.components)
    return plays


def play_openenv(case, folder):
    from viewbox.integrations.openenv import ViewboxAction, ViewboxClient, build_app

    plays = {}
    with serve_app(build_app(case.environment, case.settings)) as url, ViewboxClient(url).sync() as client:
        for number, replies in enumerate(case.replies):
            result = client.reset(task=number, seed=number)
            wire = [*result.observation.messages]
            for text, reason in replies:
                result = client.step(ViewboxAction(text=text, finish_reason=reason))
                wire += result.observation.messages
                if result.done:
                    break
            plays[number] = Play.of(wire, result.observation.end_reason, result.reward, result.observation.scores)
    return plays


def play_inspect_ai(case, folder):
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    sent = {}

    def reply(messages, tools, choice, config):
        wire = [write_chat(message) for message in messages]
        number = case.number_of(scripted.get_first_image(wire))
        text, reason = case.replies[number][sum(message["role"] == "assistant" for message in wire)]
        sent[number] = [*wire, {"role": "assistant", "content": text}]
        output = ModelOutput.from_content("mockllm", text, "stop" if reason == "stop" else "max_tokens")
        output.usage = ModelUsage()  # otherwise it counts tokens with a file from the network
        return output

    log = evaluate_with_inspect(case, folder, get_model("mockllm/model", custom_outputs=reply, memoize=False))
    plays = {}
    for sample in log.samples:
        number, score = sample.metadata["number"], sample.scores["reward"]
        about = score.metadata
        plays[number] = Play.of(sent[number], about["end_reason"], score.value, about["components"])
    return plays


def _mark(message):
    """A message of verifiers, which sends an empty reply as it is, with our mark."""
    is_empty = message["role"] == "assistant" and not message.get("content") and not message.get("tool_calls")
    return {**message, "content": EMPTY} if is_empty else message


def write_chat(message):
    """A message of inspect-ai as a chat-completion dict."""
    if isinstance(message.content, str):  # for an empty reply, its providers write a mark of their own
        is_empty = message.role == "assistant" and not message.content and not message.tool_calls
        return {"role": message.role, "content": EMPTY if is_empty else message.content}
    content = [
        {"type": "text", "text": part.text}
        if part.type == "text"
        else {"type": "image_url", "image_url": {"url": part.image}}
        for part in message.content
    ]
    return {"role": message.role, "content": content}


def evaluate_with_inspect(case, folder, model, **options):
    """The log of one evaluation."""
    from inspect_ai import eval as evaluate

    from viewbox.integrations.inspect_ai import build_task

    task = build_task(case.environment, case.settings, limit=len(case.names))
    (log,) = evaluate(task, model=model, log_dir=str(folder / "logs"), display="none", log_format="json", **options)
    assert log.status == "success", log.error
    return log


def play_trl(case, folder):
    from tests.support.everywhere_trl import play_trl as play

    return play(case, folder)


PLAYERS = {
    "verifiers": play_verifiers, "trl": play_trl, "gymnasium": play_gymnasium, "openenv": play_openenv,
    "inspect_ai": play_inspect_ai,
}  # fmt: skip
