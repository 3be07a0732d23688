"""`software_adviser`: which software fits a user's task and image? Search a catalogue, ask back once, recommend.

The user's words, the preview and what is known of the file come from a seed and the catalogue's facts (`generator.py`).
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

from msgspec.structs import replace
from pydantic import Field

from ...configs.sections import FilePath
from ...core.contract import EpisodeState, StepResult, Toolbox
from ...errors import BadRow, ConfigError
from ...images.task_images import TaskImage, open_source
from ...network.data_policy import check_may_leave
from ...records import Reply, Task
from ...rewards import CombinedReward
from ...rewards.metrics import Metric
from ...tools import Tool
from ...tools.search.wording import make_line
from ...utils.frozen import FrozenDict
from ...utils.values import is_null
from ..consultation import reply_with_facts
from ..data.settings import DataSettings
from ..data.sources import open_rows
from ..drawn import DrawnEnv
from . import demonstrations
from .answer import ANSWER, OVER_QUOTA, UNREAD, find_problem, name_numbers, normalize_answer
from .catalogue import SHIPPED, SoftwareTool, read_catalogue
from .files import describe_file
from .generator import RequestGenerator
from .phrases import HIDDEN_KINDS, LEVELS, HiddenKind, Level
from .reasons import describe_tool, list_missing
from .repositories import API_HOST, Repositories, read_facts
from .request import REASONS, SUITABLE, Reason, Request
from .retrieval import Retriever
from .rewards import GOES_ON, SAYS, build_reward, list_found, list_named, list_queries
from .scenes import draw_preview
from .tools import ADVISER_TOOLS, ASK_GITHUB, MAX_TOTAL_CALLS, SearchContext
from .wishes import ANSWERS, has_fact, read_wishes

Shown = Literal["tasks", "modalities", "dimensions", "formats", "license", "gpu", "demo", "repository"]
RETRIES = 3  # of an answer that cannot be used
LEAST_GRADE = 40  # lower grades are no part of a reference: they count as 0
NO_ANSWER = "I do not know."  # of the user
FULL, WORST = 100, 70  # grades with the gains 1 and 0
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=20)]


class SoftwareAdviser(DrawnEnv):
    """Recommend imaging software from a catalogue for a task in a user's words and a preview of the image.

    >>> env = SoftwareAdviser()
    >>> task = env.tasks[0]
    >>> episode = env.play(task, lambda messages, replies=iter(env.demonstration(task, 0)): next(replies))
    >>> episode.scores.total
    1.0
    """

    name: ClassVar[str] = "software_adviser"
    answer: ClassVar[Any] = ANSWER
    metrics: ClassVar[Mapping[str, Metric]] = {}
    habits: ClassVar[tuple[str, ...]] = ("guess", "ask", "stray")

    max_turns = 16
    tools = cast(tuple[str, ...], ADVISER_TOOLS)  # an environment holds their names
    max_total_calls = MAX_TOTAL_CALLS
    max_malformed = RETRIES + 1
    max_pixels = 256 * 256

    requests: Annotated[
        FilePath | None,
        Field(description="a table of your own requests, which are played and not scored: `words`, and perhaps `file`"),
    ] = None
    catalogue: Annotated[
        FilePath | None, Field(description="file of your own catalogue (.jsonl); default: the shipped one")
    ] = None
    ambiguous: Annotated[Share, Field(description="share of requests that take a question back")] = 0.25
    unanswerable: Annotated[Share, Field(description="share of requests that nothing suits")] = 0.25
    pictured: Annotated[
        Share, Field(description="share of those with an answer whose picture alone tells what it is and shows")
    ] = 0.95
    follow_ups: Annotated[
        Share, Field(description="share of those with an answer after which the user goes on, with one more wish")
    ] = 0.2
    filed: Annotated[
        Share, Field(description="share of the clear ones that are about a file, whose header tells what it is")
    ] = 0.1
    levels: Annotated[tuple[Level, ...], Field(min_length=1, description="in whose words users ask")] = LEVELS
    hides: Annotated[
        tuple[HiddenKind, ...], Field(min_length=1, description="facts of which an ambiguous request hides one")
    ] = HIDDEN_KINDS
    reasons: Annotated[
        tuple[Reason, ...], Field(min_length=1, description="why nothing suits an unanswerable request")
    ] = REASONS
    num_choices: Annotated[
        tuple[Count, ...], Field(min_length=1, description="the most software to recommend: a number a task, in turn")
    ] = (3,)
    top_k: Annotated[
        tuple[Count, ...], Field(min_length=1, description="software that a search returns: a number a task, in turn")
    ] = (12,)
    shown: Annotated[
        tuple[Shown, ...] | None,
        Field(description="facts that a search shows beside the name, for small models; default: all, with a sentence"),
    ] = None
    by_number: Annotated[
        bool, Field(description="an answer may name software by its number in the last search, for small models")
    ] = False
    max_questions: Annotated[int, Field(ge=0, description="questions that the user answers; a further one ends it")] = 1
    live: Annotated[
        bool, Field(description="`repo_info_batch` asks GitHub instead of a recorded table; not in training")
    ] = False

    # ------------------------------------------------------------------ the catalogue
    @cached_property
    def software(self) -> Mapping[str, SoftwareTool]:
        return FrozenDict({tool.name: tool for tool in read_catalogue(self.catalogue or SHIPPED)})

    @cached_property
    def retriever(self) -> Retriever:
        return Retriever(tuple(self.software.values()))

    @cached_property
    def _generator(self) -> RequestGenerator:
        clear = 1.0 - self.ambiguous - self.unanswerable
        if clear < -1e-9:
            total = self.ambiguous + self.unanswerable
            raise ConfigError(
                f"{self.name}: ambiguous + unanswerable = {total:g}; allowed: at most 1", key="unanswerable"
            )
        shares = {"answerable": max(0.0, clear), "ambiguous": self.ambiguous, "unanswerable": self.unanswerable}
        chosen = (FrozenDict(shares), self.levels, self.hides, self.reasons, self.pictured, self.follow_ups, self.filed)
        return RequestGenerator(tuple(self.software.values()), self.split, *chosen)

    @property
    def _repositories(self) -> Repositories:
        if not self.live:
            return Repositories(read_facts())
        from .github import open_github

        return Repositories(read_facts(), open_github().look_up, patience=0.75 * (self.tool_timeout or 60.0))

    def prepare(self) -> None:
        super().prepare()
        self.retriever.prepare()
        _ = self._repositories  # refuses a token that is none

    def check_may_train(self) -> None:
        super().check_may_train()
        if self.live:
            raise ConfigError(
                "live: facts of GitHub change from day to day and ask a public service for every episode; allowed in "
                "training: live: false, which answers from the recorded table",
                key="live",
            )

    def _build_toolbox(self, own: dict[str, Tool]) -> Toolbox:
        if not self.live:
            return super()._build_toolbox(own)
        action, allowed = "live sends the names of repositories to", "live: false"
        check_may_leave(self, f"https://{API_HOST}", action=action, allowed=allowed, key="live")
        return super()._build_toolbox({**own, ASK_GITHUB.name: ASK_GITHUB})

    # ------------------------------------------------------------------ tasks
    @cached_property
    def tasks(self) -> Sequence[Task]:
        """Requests without end, each from its seed; or your own."""
        return super().tasks if self.requests is None else tuple(self._read_requests(self.requests))

    def _read_requests(self, path: str) -> Iterator[Task]:
        rows = open_rows(DataSettings(source=path))
        for number in range(len(rows)):
            row = rows.read(number, {"words", "file"} & set(rows.list_columns()))
            if is_null(words := row.get("words")):
                raise BadRow(path, rows.locate(number), "words", words, "what a user wants, in words")
            images = () if is_null(file := row.get("file")) else (rows.folder or Path()) / str(file)
            yield replace(self.make_task(str(words), images), id=f"request-{number}")

    def make_task(self, question: str, images: Any = (), **prompt: object) -> Task:
        """Return the task of a person's own words and files; what is known of the first file is read from it."""
        task = super().make_task(question, images, words=question, **prompt)
        first = images[0] if isinstance(images, list | tuple) and images else images
        location = os.fspath(first) if isinstance(first, os.PathLike) else first
        file = describe_file(open_source(task.images[0]), location) if task.images else {}
        return replace(task, prompt={**task.prompt, "file": file})

    def get_request(self, task: Task) -> Request:
        """Return the request of a task, with the facts that the model does not see; once its user went on, the one
        after that."""
        if self.is_drawn(task):
            request = self.make_request(task.metadata["seed"])
            return request.follow_up or request if "answers" in task.prompt else request
        known = self._get_file(task)
        format, dimensions = str(known.get("format", "")), str(known.get("dimensions", ""))
        return Request(self._get_words(task), "expert", "", "", dimensions, format, metadata=FrozenDict(known))

    def _get_words(self, task: Task) -> str:
        words = task.prompt.get("words")
        return str(
            self.read_prompt(task, "question", "what the user wants (or prompt.words)") if words is None else words
        )

    def _get_file(self, task: Task) -> Mapping[str, Any]:
        file = task.prompt.get("file")
        return file if isinstance(file, Mapping) else describe_file(open_source(task.images[0])) if task.images else {}

    @cached_property
    def make_request(self) -> Callable[[int], Request]:
        return lru_cache(maxsize=1024)(self._generator.make)

    def make_drawn(self, seed: int) -> Task:
        request, places = self.make_request(seed), self.num_choices[seed % len(self.num_choices)]
        reference: dict[str, Any] = {
            "category": request.reason or request.status,
            "facts": request.write_facts(),
            "hidden": list(request.hidden.values()),
            "excluded": list(request.exclude),
            **self._grade(request),
        }
        if request.reason:
            reference["reason"] = request.reason
        else:
            reference["places"] = places
        if request.follow_up:
            reference["follow_up"] = {"words": request.follow_up.words, **self._grade(request.follow_up)}
        prompt = {"words": request.words, "file": dict(request.metadata), "choices": places}
        metadata = {"seed": seed, "split": self.split, "top_k": self.top_k[seed % len(self.top_k)]}
        return Task(f"software_adviser-{self.split}-{seed}", prompt=prompt, reference=reference, metadata=metadata)

    def _grade(self, request: Request) -> dict[str, Any]:
        """Return what is right for a request: what it is about, its suitable software, and how reasons are judged."""
        kinds = ("task", "modality", "variant", "format", "structure")
        wanted = {kind: getattr(request, kind) or "" for kind in kinds} | {"said": request.words}
        about = {"wanted": wanted, "missing": list_missing(request)}
        if request.reason:
            return about
        grades = {name: points for name, points in self._generator.rate(request).items() if points >= LEAST_GRADE}
        gains = {name: (points - WORST) / (FULL - WORST) for name, points in grades.items() if points >= SUITABLE}
        demos = {name: demo for name in grades if (demo := self.software[name].demo)}
        facts = {name: describe_tool(self.software[name], request.task) for name in gains}
        return {**about, "suitable": gains, "grades": grades, "demos": demos, "facts_of": facts}

    def draw_images(self, task: Task) -> Sequence[TaskImage]:
        return [draw_preview(self.get_request(task))]

    # ------------------------------------------------------------------ tools
    def hidden_arguments(self, task: Task, tool: str) -> Mapping[str, object]:
        """Return what the model never sees: the exclusions, the format of the file, how much a search returns."""
        if tool == ASK_GITHUB.name:
            return {"repositories": self._repositories}
        request, said = self.get_request(task), " ".join(task.prompt.get("later", ()))
        wishes = read_wishes(said)
        formats = tuple(word for kind, words in wishes if kind == "formats" for word in words)
        demands = [(kind, words) for kind, words in wishes if kind in ANSWERS]
        lacking = [name for name, one in self.software.items()
                   if not all(any(has_fact(one, kind, word) for word in words) for kind, words in demands)]  # fmt: skip
        again = {name.casefold() for name in self.retriever.list_named(said)}
        named = [name for name in list_named(task.prompt.get("answers", ())) if name.casefold() not in again]
        context = SearchContext(
            self.retriever,
            task.metadata.get("top_k", self.top_k[0]),
            exclude=(*request.exclude, *request.withheld, *named, *lacking),
            formats=formats or request.known_formats,
            max_chars=self.max_tool_chars,
            shown=self.shown,
            numbered=self.by_number,
        )
        return {"context": context}

    # ------------------------------------------------------------------ what the model reads
    def system_prompt(self, task: Task) -> str:
        asks = " If you cannot choose because a fact is missing, ask one question." if self.max_questions else ""
        return (
            "You recommend imaging software from a catalogue. Look at the picture first: it may be all that tells the "
            "kind of image and what is to be seen. Then search, and recommend only what a search returned; `why` names "
            f"the task, what is seen, the kind of image and the format, in a sentence.{asks} If nothing fits, give the "
            "reason and explain it. If the user goes on after your answer, search again, and leave out what you named."
        )

    def user_message(self, task: Task) -> str:
        known = "; ".join(f"{name}: {value}" for name, value in self._get_file(task).items())
        return f"{self._get_words(task)}\nFile: {known or 'none'}\nRecommend at most {self._count_places(task)}."

    def _count_places(self, task: Task) -> int:
        return int(task.prompt.get("choices", self.num_choices[0]))

    # ------------------------------------------------------------------ answers
    def validate_answer(self, answer: Any, task: Task) -> str | None:
        """Reject contradictory answers and normalize the rest: see `answer.py`."""
        problem = find_problem(answer, self._count_places(task))
        if problem is None:
            regular = normalize_answer(answer)
            answer.clear()
            answer.update(regular)
        return problem

    def on_answer(self, state: EpisodeState, answer: Mapping[str, Any]) -> str | None:
        """Reply to a question; after an answer, say what the user still wants, if the task has that."""
        question, after = self.find_question(answer), state.task.reference.get("follow_up")
        if question or after is None or "answers" in state.task.prompt:
            return reply_with_facts(state, question, SAYS, NO_ANSWER, self.max_questions)
        state.task = self.continue_task(state.task, self._name_numbers(state, answer), after["words"])
        state.calls.clear()
        state.first_turn = len(state.turns)
        return f"{GOES_ON}{after['words']}"

    def continue_task(self, task: Task, answer: Mapping[str, Any] | None, text: str) -> Task:
        """Return the task with an answer and with what its user said then: a search leaves out what was named, and
        what lacks a wish that was added."""
        answers, later = task.prompt.get("answers", ()), task.prompt.get("later", ())
        answers = answers if answer is None or self.find_question(answer) else (*answers, answer)
        return replace(task, prompt=FrozenDict({**task.prompt, "answers": answers, "later": (*later, text)}))

    def _name_numbers(self, state: EpisodeState, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        *_, results = ((), *list_found(state.turns))
        return FrozenDict(name_numbers(answer, results)) if self.by_number else answer

    def find_question(self, answer: Mapping[str, Any]) -> str | None:
        return answer["conversation"]["question"] or None

    async def step(self, state: EpisodeState, reply: Reply | str) -> StepResult:
        """As any environment; an episode without an answer that asked for more calls than it had gets one in words."""
        result = await super().step(state, reply)
        if state.answer is not None:
            state.answer = self._name_numbers(state, state.answer)
        if state.end_reason is not None and state.answer is None and self._is_over_quota(state):
            state.answer = FrozenDict(normalize_answer({"explanation": OVER_QUOTA}))
            state.flags.add("over_quota")
        elif state.end_reason == "malformed" and state.answer is None:
            queries = ", ".join(make_line(query, 80) for query in list_queries(state.turns)) or "nothing"
            state.answer = FrozenDict(normalize_answer({"explanation": UNREAD.format(queries=queries)}))
            state.flags.add("unread")
        if state.end_reason is not None and not state.has_person and (before := state.task.prompt.get("answers")):
            state.answer = FrozenDict({**(state.answer or normalize_answer({})), "before": before})
        return result

    def _is_over_quota(self, state: EpisodeState) -> bool:
        asked = Counter(call.name for turn in state.turns[state.first_turn :] for call in turn.tool_calls)
        limits = {name: self.toolbox.get_max_calls(name) for name in state.tools}
        over = any(limit is not None and asked[name] > limit for name, limit in limits.items())
        return over or (self.max_total_calls is not None and asked.total() > self.max_total_calls)

    # ------------------------------------------------------------------ scores
    def default_reward(self) -> CombinedReward:
        return build_reward()

    def perfect_answer(self, task: Task) -> dict[str, object]:
        *before, last = (normalize_answer(json.loads(text)) for text in demonstrations.write_best(self, task))
        return last | ({"before": before} if before else {})

    def write_answer(self, task: Task) -> str:
        """Return the best answer; if the user goes on, the one after that."""
        return demonstrations.write_best(self, task)[-1]

    def oracle(self, task: Task) -> tuple[str, ...]:
        """Return a question if a fact is hidden; then searches that return what the best answer names. If the user goes
        on, that answer, and searches for the next."""
        return demonstrations.write_looks(self, task)

    def demonstration(self, task: Task, seed: int, **habits: float) -> list[str]:
        """Return the oracle's looks and the best answer, with habits that imitate an adviser without practice.

        `guess`: share of the ambiguous requests that are answered without a question. `ask`: share of all others with a
        needless one. `stray`: share in which the search is for the facts of another request, and its first hit is
        recommended.
        """
        self.check_habits(habits)
        return demonstrations.write_demonstration(self, task, seed, {**dict.fromkeys(self.habits, 0.0), **habits})
