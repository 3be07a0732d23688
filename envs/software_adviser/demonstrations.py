"""The replies of a scripted adviser: a question where one is needed, searches, and the answer; for demonstrations."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from ...core.messages import write_call
from ...records import Task
from ...utils.frozen import FrozenDict
from .answer import NEEDS_CLARIFICATION, normalize_answer
from .catalogue import SoftwareTool
from .phrases import QUESTIONS, HiddenKind
from .request import Request
from .rewards import describe_follow_up, list_named

MAX_ALTERNATIVES = 3  # calls of search_alternative


def write_looks(env: Any, task: Task) -> tuple[str, ...]:
    """Return a question if a fact is hidden, and searches after which every name of the best answer was returned; if
    the user goes on, that answer, and searches for the one after that."""
    looks = [write_question(kind) for kind in env.get_request(task).hidden if env.max_questions]
    looks += _write_searches(env, task)
    for first in write_best(env, task)[:-1]:
        looks += [first, *_write_searches(env, go_on(env, task, first))]
    return tuple(looks)


def write_best(env: Any, task: Task) -> tuple[str, ...]:
    """Return the best answer of a task, and the one after that if its user goes on."""
    best = write_advice(env, task, rank_suitable(env, task))
    if "follow_up" not in task.reference:
        return (best,)
    after = go_on(env, task, best)
    return best, write_advice(env, after, rank_suitable(env, after))


def go_on(env: Any, task: Task, answer: str) -> Task:
    """Return the task after that answer, with what is right then."""
    said = normalize_answer(json.loads(answer))
    after: Task = env.continue_task(task, said, task.reference["follow_up"]["words"])
    return replace(after, reference=FrozenDict(describe_follow_up(task.reference, list_named([said]))))


def _write_searches(env: Any, task: Task) -> list[str]:
    request = env.get_request(task)
    if request.reason == "invalid_files":
        return []
    query = write_query(request)
    missing = [name for name in rank_suitable(env, task) if name not in search(env, task, query)]
    searches = [("search_tools", query)]
    if "search_alternative" in env.tools_of(task):
        for start in range(min(MAX_ALTERNATIVES, len(missing))):
            searches.append(("search_alternative", " ".join(missing[start::MAX_ALTERNATIVES])))
    elif missing:
        searches = [("search_tools", " ".join(missing))]
    return [write_call(name, {"query": query}) for name, query in searches]


def write_demonstration(env: Any, task: Task, seed: int, habits: Mapping[str, float]) -> list[str]:
    """Return the replies of an adviser that knows the facts of the request, with the habits of `SoftwareAdviser`."""
    request, rng = env.get_request(task), np.random.default_rng([seed, 43])
    asking, _, straying = rng.random(3)
    habitual, stray = asking < habits["guess" if request.hidden else "ask"], straying < habits["stray"]
    kind, shift = list(QUESTIONS)[int(rng.integers(len(QUESTIONS)))], int(rng.integers(1, 2**20))
    if not (habitual or stray or env.by_number):
        return [*write_looks(env, task), write_best(env, task)[-1]]
    told = not (habitual and request.hidden)
    asks = [write_question(field) for field in request.hidden if told and env.max_questions]
    asks += [write_question(kind)] if habitual and not request.hidden else []
    query = write_query(env.make_request(request.seed + shift) if stray else request, told=told)
    results = search(env, task, query)
    looks = [] if request.reason == "invalid_files" else [write_call("search_tools", {"query": query})]
    wanted = [name for name in rank_suitable(env, task) if name in results] if told and not stray else []
    names = wanted or results[: task.prompt["choices"]]
    numbers = {name: str(number) for number, name in enumerate(results, 1)} if env.by_number and looks else {}
    replies = [*asks, *looks, write_advice(env, task, names, numbers, sure=not wanted)]
    if "follow_up" in task.reference:
        after = go_on(env, task, write_advice(env, task, names, sure=not wanted))
        replies += [*_write_searches(env, after), write_advice(env, after, rank_suitable(env, after))]
    return replies


def rank_suitable(env: Any, task: Task) -> list[str]:
    """Return the best names for a task, at most as many as it allows; of equal grades those that the search ranks
    first."""
    gains = task.reference.get("suitable", {})
    results = search(env, task, write_query(env.get_request(task)))
    places = {name: place for place, name in enumerate(results)}
    ranked = sorted(gains, key=lambda name: (-gains[name], places.get(name, len(places)), name))
    return ranked[: task.prompt["choices"]]


def search(env: Any, task: Task, query: str) -> list[str]:
    results: list[str] = env.hidden_arguments(task, "search_tools")["context"].find(query)
    return results


def write_query(request: Request, *, told: bool = True) -> str:
    """Return the facts of a request as a query; without what is hidden, unless the user has `told` it."""
    facts = {kind: getattr(request, kind) for kind in ("task", "modality", "structure", "dimensions", "format")}
    return " ".join(value for kind, value in facts.items() if value and (told or kind not in request.hidden))


def write_advice(
    env: Any, task: Task, names: Sequence[str], numbers: Mapping[str, str] = {}, *, sure: bool = False
) -> str:
    """Return an answer that recommends these names (or their `numbers`) with their grades, or gives the reason if
    nothing is suitable. One that is `sure` states an accuracy of 100."""
    ends: dict[str, Any] = {"continue": False} if env.max_turns > 1 else {}
    if "reason" in task.reference:
        missing = task.reference["missing"][0]
        said = f"Nothing in the catalogue that I found is able to serve this request: {missing}."
        return json.dumps({"choices": [], "reason": task.reference["reason"], "explanation": said, **ends})
    grades = task.reference["grades"]
    choices = [
        {
            "name": numbers.get(name, name),
            "rank": rank,
            "accuracy": 100 if sure else grades.get(name, 0),
            "why": write_why(env.get_request(task), tool),
            **({"demo_link": tool.demo} if tool.demo and not numbers else {}),
        }
        for rank, (name, tool) in enumerate(((name, env.software[name]) for name in names), 1)
    ]
    return json.dumps({"choices": choices, **ends})


def write_why(request: Request, tool: SoftwareTool) -> str:
    """Return a reason that names the facts of the request that a software has, and says which it lacks."""
    of = f" of the {request.structure}" if request.structure else ""
    reads = f"reads {request.format} files" if request.format in tool.formats else "reads files of the kind"
    lacks = "" if request.format in tool.formats else f"; it does not read {request.format} itself"
    return f"It is made for {request.task}{of} in {request.modality} images and {reads}{lacks}."


def write_question(kind: HiddenKind) -> str:
    said = {"status": NEEDS_CLARIFICATION, "question": QUESTIONS[kind], "context": "Several tools differ in this."}
    return json.dumps({"conversation": said, "continue": False})
