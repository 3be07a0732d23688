"""The replies of a scripted adviser: a question where one is needed, searches, and the answer; for demonstrations."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.messages import write_call
from ...records import Task
from ...utils.frozen import FrozenDict
from .answer import NEEDS_CLARIFICATION
from .phrases import HiddenKind
from .request import Request

MAX_ALTERNATIVES = 3  # calls of search_alternative
QUESTIONS: Mapping[HiddenKind, str] = {
    "task": "What do you want to do with the images?",
    "dimensions": "Is it a slice, a stack or a time series?",
    "format": "Which file format do the images have?",
}


def write_looks(env: Any, task: Task) -> tuple[str, ...]:
    """Return a question if a fact is hidden, and searches after which every name of the best answer was returned."""
    request = env.get_request(task)
    asks = [write_question(kind) for kind in request.hidden if env.max_questions]
    if request.reason == "invalid_files":
        return ()
    query = write_query(request)
    missing = [name for name in rank_suitable(env, task) if name not in search(env, task, query)]
    searches = [("search_tools", query)]
    if "search_alternative" in env.tools_of(task):
        for start in range(min(MAX_ALTERNATIVES, len(missing))):
            searches.append(("search_alternative", _find_query(env, task, missing[start::MAX_ALTERNATIVES])))
    elif missing:
        searches = [("search_tools", _find_query(env, task, missing))]
    return (*asks, *(write_call(name, {"query": query}) for name, query in searches))


def _find_query(env: Any, task: Task, names: Sequence[str]) -> str:
    """Return a query that returns all these names; the first that was tried if none does."""
    request = env.get_request(task)
    named = " ".join(names)
    queries = (named, f"{named} {request.task}", f"{named} {request.task} {request.modality} {request.dimensions}",
               " ".join(env.software[name].features for name in names))  # fmt: skip
    return next((query for query in queries if set(names) <= set(search(env, task, query))), queries[0])


def write_demonstration(env: Any, task: Task, seed: int, habits: Mapping[str, float]) -> list[str]:
    """Return the replies of an adviser that knows the facts of the request, with the habits of `SoftwareAdviser`."""
    request, rng = env.get_request(task), np.random.default_rng([seed, 43])
    draws = dict(zip(("question", "terse", "stray"), rng.random(3), strict=True))
    kind, shift = list(QUESTIONS)[int(rng.integers(len(QUESTIONS)))], int(rng.integers(1, 2**20))
    habitual = draws["question"] < habits["guess" if request.hidden else "ask"]
    terse, stray = draws["terse"] < habits["terse"], draws["stray"] < habits["stray"]
    if not (habitual or terse or stray):
        return [*write_looks(env, task), write_advice(env, task, rank_suitable(env, task))]
    told = not (habitual and request.hidden)
    asks = [write_question(one) for one in request.hidden if told and env.max_questions]
    asks += [write_question(kind)] if habitual and not request.hidden else []
    query = write_query(env.make_request(request.seed + shift) if stray else request, told=told)
    found = search(env, task, query)
    looks = [] if request.reason == "invalid_files" else [write_call("search_tools", {"query": query})]
    wanted = [name for name in rank_suitable(env, task) if name in found] if told and not stray else []
    names = wanted or found[: task.prompt["choices"]]
    numbers = {name: str(number) for number, name in enumerate(found, 1)} if env.by_number and looks else {}
    return [*asks, *looks, write_advice(env, task, names, numbers, terse=terse, sure=not wanted)]


def rank_suitable(env: Any, task: Task) -> list[str]:
    """Return the best names for a task, at most as many as it allows; of equal grades those that the search ranks
    first."""
    gains = task.reference.get("suitable", {})
    found = search(env, task, write_query(env.get_request(task)))
    places = {name: place for place, name in enumerate(found)}
    ranked = sorted(gains, key=lambda name: (-gains[name], places.get(name, len(places)), name))
    return ranked[: task.prompt["choices"]]


def search(env: Any, task: Task, query: str) -> list[str]:
    request = env.get_request(task)
    exclude = (*request.exclude, *request.withheld)
    top_k = task.metadata["top_k"]
    found: list[str] = env.retriever.search(query, top_k=top_k, exclude=exclude, formats=request.known_formats)
    return found


def write_query(request: Request, *, told: bool = True) -> str:
    """Return the facts of a request as a query; without what is hidden, unless the user has `told` it."""
    facts = {kind: getattr(request, kind) for kind in ("task", "modality", "dimensions", "format")}
    return " ".join(value for kind, value in facts.items() if value and (told or kind not in request.hidden))


def write_advice(
    env: Any,
    task: Task,
    names: Sequence[str],
    numbers: Mapping[str, str] = FrozenDict(),
    *,
    terse: bool = False,
    sure: bool = False,
) -> str:
    """Return an answer that recommends these names (or their `numbers`) with their grades, or gives the reason if
    nothing is suitable. A `terse` one lacks what may be left out; one that is `sure` states an accuracy of 100."""
    ends: dict[str, Any] = {"continue": False} if env.max_turns > 1 else {}
    if "reason" in task.reference:
        return json.dumps({"choices": [], "reason": task.reference["reason"], **ends})
    grades = task.reference["grades"]
    choices = [
        {
            "name": numbers.get(name, name),
            "rank": rank,
            "accuracy": 100 if sure else grades.get(name, 0),
            **({} if terse else {"why": f"it is made for {', '.join(one.tasks)}", "demo_link": one.demo}),
        }
        for rank, (name, one) in enumerate(((name, env.software[name]) for name in names), 1)
    ]
    return json.dumps({"choices": choices, **ends})


def write_question(kind: HiddenKind) -> str:
    said = {"status": NEEDS_CLARIFICATION, "question": QUESTIONS[kind]}
    return json.dumps({"conversation": said, "continue": False})
