"""A person's own images and question: `ask` for one, `open_session` for a conversation.

    session = viewbox.open_session("chest_xray", viewbox.load_model("package:tiny_chest"))
    print(session.ask("Is there an effusion?", "film.png"))
    print(session.ask("And on the other side?"))

A session is one episode of the turn loop, whatever is said in it: its messages only grow. What the model asks back ends
an exchange as an answer does, and what the person says next continues the episode. There is no right answer, so nothing
is scored, and no reward is asked. The record is stored again after every turn, in the place of the one before.
"""

import asyncio
import html
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ..configs import yaml_reader
from ..core.base import BaseMultiTurnEnv, get_offered_tools
from ..core.loop import OnQuestion, Policy, ask_person, go_on, hear, play_to_end
from ..engines.generator import Generator
from ..engines.scripted import PolicyGenerator
from ..envs import make
from ..errors import ConfigError
from ..images.task_images import to_references
from ..network import background
from ..network.data_policy import check_may_leave, keep_on_this_machine
from ..records import Episode, Reply, Turn
from ..rewards.evidence import check_citations
from ..utils.concurrency import run_in_thread
from ..utils.field_paths import convert_at
from ..utils.frozen import thaw
from ..utils.terminal import describe_error
from .play import MAX_REASON, Health, Play
from .store.writer import EpisodeWriter

THREAD = "viewbox-ask"  # of the event loop of what is asked without one
Hearing = Callable[[str], str | None]  # takes what the model asks back, returns what a person says, or None
TIMEOUT = 600.0  # seconds of an exchange


@dataclass(frozen=True)
class Answer:
    """What came of a question: the answer, or what the model asks back.

    Args:
        episode: the record so far, earlier exchanges included; `episode.info["answers"]` holds the answers of all.
        question: what the model asks back instead; None if it answered.
        boxes: the answer's boxes, in fractions of the first image of the episode.
        turns: those of this exchange.
    """

    episode: Episode
    question: str | None = None
    boxes: tuple[tuple[float, ...], ...] = ()
    turns: tuple[Turn, ...] = ()

    @property
    def value(self) -> Mapping[str, Any] | None:
        """The answer, checked against the environment's schema; None if there is none."""
        return self.episode.answer

    def __str__(self) -> str:
        if self.question is not None:
            return self.question
        if self.value is None:
            reason = self.episode.info.get("error")
            return f"no answer ({self.episode.end_reason}{f': {reason}' if reason else ''})"
        checked = "".join(f"\n{pmid}: {verdict}" for pmid, verdict in self.evidence.items())
        return write_readable(self.value) + checked

    @property
    def evidence(self) -> Mapping[str, str]:
        """What was found of each article that the answer cites (`rewards/evidence.py`), by its PMID."""
        if self.value is None or "evidence" not in self.value:
            return {}
        return check_citations(self.episode, self.value, [name for name in self.value if name != "evidence"])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the pictures, the answer's boxes on the first, and the answer."""
        marks = "".join(
            f'<div style="position:absolute;border:2px solid #d33;left:{100 * x1:.2f}%;top:{100 * y1:.2f}%;'
            f'width:{100 * (x2 - x1):.2f}%;height:{100 * (y2 - y1):.2f}%"></div>'
            for x1, y1, x2, y2 in self.boxes
        )
        shown, parts = False, []
        for turn in self.episode.turns:
            for image in turn.images:
                drawn = "" if shown else marks
                picture = f'<img src="{image.render().to_data_url()}" style="max-width:256px;display:block">'
                parts.append(f'<div style="position:relative;display:inline-block;margin:4px">{picture}{drawn}</div>')
                shown = True
        return f'<div>{"".join(parts)}</div><pre style="white-space:pre-wrap">{html.escape(str(self))}</pre>'


def write_readable(answer: Mapping[str, Any]) -> str:
    """Return an answer as a person reads it: its only text, or what is filled in, as YAML.

    >>> print(write_readable({"answer": "an effusion", "bbox": None}))
    an effusion
    >>> print(write_readable({"choices": [{"name": "A", "why": None}, {"name": "B", "why": "3D"}]}))
    choices:
    - name: A
    - name: B
      why: 3D
    """
    filled = _drop_empty(thaw(answer))
    if len(filled) == 1 and isinstance(only := next(iter(filled.values())), str | int | float):
        return str(only)
    return yaml_reader.write(filled).strip() if filled else "(nothing)"


def _drop_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_empty(item) for name, item in value.items() if item not in (None, "", [], {})}
    if isinstance(value, list):
        has_parts = any(isinstance(item, dict) for item in value)
        return list(map(_drop_empty, value)) if has_parts else ", ".join(map(str, value))
    return value


class Session(AbstractContextManager["Session"]):
    """A conversation of a person with a model in an environment. `close` it, or use it in a `with` block.

    Args:
        env: the environment.
        generator: gives the replies.
        folder: of the episodes, where the record is stored; None: nowhere.
        on_turn: called with every turn as it comes.
        timeout: seconds of an exchange.
        closes: whether `close` closes the generator, too.
    """

    def __init__(
        self,
        env: BaseMultiTurnEnv,
        generator: Generator,
        *,
        folder: str | Path | None = None,
        seed: int = 0,
        on_turn: Callable[[Turn], object] | None = None,
        timeout: float | None = TIMEOUT,
        closes: bool = True,
    ) -> None:
        address = getattr(generator, "url", None)
        check_may_leave(env, address, action="its images would be sent to", allowed="a model on this machine")
        env.check_may_ask()
        self.env, self.health, self.seed = env, Health(generator), seed
        self.on_turn, self.timeout, self.closes = on_turn, timeout, closes
        self.writer = None if folder is None else EpisodeWriter(folder)
        self.play: Play | None = None
        self.answers: list[dict[str, Any]] = []  # of each exchange
        self._told = 0  # turns that were given to `on_turn`
        self._lock = asyncio.Lock()  # what is said waits for what was said before, and `close` for both

    def ask(self, question: str, images: object = (), *, on_question: Hearing | None = None) -> Answer:
        """Ask; or say more, after an answer or a question of the model. Works in scripts and in notebooks.

        Args:
            question: what you say.
            images: in any form that `viewbox.Task` takes; later ones are added to those of the session.
            on_question: takes what the model asks back, returns what you say to it, or None. It is called in this
                thread. Without it, the model's question is returned, and the next `ask` answers it.
        """
        answer = background.run(self._say(question, images), THREAD)
        while on_question and answer.question is not None and (said := on_question(answer.question)):
            answer = background.run(self._say(said), THREAD)
        return answer

    async def ask_async(self, question: str, images: object = (), *, on_question: OnQuestion | None = None) -> Answer:
        """`ask` for code with an event loop of its own; a session is used by one of the two."""
        answer = await self._say(question, images)
        while on_question and self.play and (said := await hear(self.play.env, self.play.state, on_question)):
            answer = await self._say(said)
        return answer

    async def _say(self, text: str, images: object = ()) -> Answer:
        async with self._lock:
            with keep_on_this_machine(self.env):
                first = 0 if self.play is None else len(self.play.state.turns)
                if self.play is None:
                    self.play = await self._open(text, images)
                else:
                    await run_in_thread(self._go_on, self.play, text, images)
                await self._exchange(self.play)
                return self._finish(self.play, first)

    async def _open(self, question: str, images: object) -> Play:
        play = Play(self.health, self.env, await run_in_thread(self.env.make_task, question, images), self.seed)
        await run_in_thread(play.env.prepare_to_serve)
        await play.open()
        play.state.tells_faults, play.state.has_person = play.env.on_tool_fault != "end", True
        return play

    def _go_on(self, play: Play, text: str, images: object) -> None:
        state, conversation, more = play.state, play.conversation, to_references(images)
        is_reply = ask_person(play.env, state) is not None and not more
        if more:
            state.task = replace(state.task, images=(*state.task.images, *more))
            state.tools = tuple(dict.fromkeys([*state.tools, *get_offered_tools(play.env, state.task)]))
            state.tool_schemas = play.env.toolbox.build_schemas(state.tools)
        conversation.info.pop("error", None)
        go_on(play.env, state, text, [ref.load() for ref in more], is_reply=is_reply)
        if not conversation.record.prompt_ids:  # else the prompt has taught the tools
            conversation.tools = state.tool_schemas

    async def _exchange(self, play: Play) -> None:
        async def step(reply: Reply) -> None:
            await play.step(reply)
            await self._publish(play)

        await self._publish(play)
        try:
            async with play.end_after(self.timeout):
                await play_to_end(play.state, play.get_reply, step)
        except BaseException as error:  # Ctrl-C, or a model that cannot be used: what was said is kept
            play.state.end("cancelled" if isinstance(error, asyncio.CancelledError) else "error")
            play.conversation.info["error"] = describe_error(error, MAX_REASON)
            self._store(self.episode)
            raise

    async def _publish(self, play: Play) -> None:
        """Store what was said so far, and then show what is new: the files of its pictures are there."""
        if self.writer is not None:
            await run_in_thread(self._store, self.episode)
        new, self._told = play.state.turns[self._told :], len(play.state.turns)
        for turn in new if self.on_turn is not None else ():
            self.on_turn(turn)  # type: ignore[misc]

    def _finish(self, play: Play, first: int) -> Answer:
        state = play.state
        answer = None if state.answer is None else thaw(state.answer)
        self.answers.append({"turn": len(state.turns), "end_reason": state.end_reason, "answer": answer})
        episode = self._build_episode(play, tokens=True)
        self._store(episode)
        boxes = list[tuple[float, ...]]()
        for path in play.env.boxes:
            convert_at(answer or {}, path, lambda box, name: boxes.append(tuple(box)))
        return Answer(episode, ask_person(play.env, state), tuple(boxes), tuple(state.turns[first:]))

    @property
    def episode(self) -> Episode:
        """The record so far. Raise `RuntimeError` before the first question."""
        if self.play is None:
            raise RuntimeError("nothing was asked yet; call ask()")
        return self._build_episode(self.play)

    def _build_episode(self, play: Play, *, tokens: bool = False) -> Episode:
        info = {**play.conversation.info, **({"answers": self.answers} if len(self.answers) > 1 else {})}
        rows = play.conversation.record.to_episode_tokens() if tokens else None
        return play.env.build_episode(copy(play.state), play.run_config, tokens=rows, info=info, scored=False)

    def _store(self, episode: Episode) -> None:
        if self.writer is not None:
            self.writer.append(episode, replaces=True)

    def close(self) -> None:
        """End the session; what was said is stored already. Closing twice is allowed."""
        background.run(self.close_async(), THREAD)

    async def close_async(self) -> None:
        """`close` for code with an event loop of its own."""
        async with self._lock:
            if self.play is not None:
                self.health.generator.leave(self.play.conversation)
            if self.closes:
                await self.health.generator.close()
                self.closes = False
            if self.writer is not None:
                self.writer.close()

    def __exit__(self, *_: object) -> None:
        self.close()


AnyEnv = BaseMultiTurnEnv | str
AnyModel = Generator | Policy | str


def open_session(env: AnyEnv, model: AnyModel, *, out: str | Path | None = None, **options: Any) -> Session:
    """Return a conversation with a model in an environment: `session.ask(question, images)`, as often as you like.

    Args:
        env: an environment, or its name: then it is made with the settings that the model needs.
        model: from `viewbox.load_model` or `viewbox.connect`; what `load_model` takes; or a function of the messages.
        out: folder where the record is stored, for `viewbox view`; default: nowhere.
        options: `seed` and `on_turn` (see `Session`); others are settings of the environment, if it is given by name.
    """
    if isinstance(model, str):
        from ..engines.models import load_model

        model = load_model(model)
    loaded: Any = model
    generator: Generator = loaded if hasattr(loaded, "reply") else PolicyGenerator(loaded)
    session_options = {name: options.pop(name) for name in ("seed", "on_turn") if name in options}
    if isinstance(env, str):
        env = make(env, **{**getattr(generator, "env_settings", {}), **options})
    elif options:
        problem = "the environment is made already; give its name, or settings to `make`"
        raise ConfigError(f"{', '.join(options)}: {problem}")
    return Session(env, generator, folder=out, closes=generator is not model, **session_options)


def ask(
    env: AnyEnv, images: object, question: str, model: AnyModel, on_question: Hearing | None = None, **options: Any
) -> Answer:
    """Ask one question about one's own images. The arguments are those of `open_session` and of `Session.ask`.

    >>> import numpy as np
    >>> print(ask("vqa", np.zeros((32, 32), np.uint8), "Is it dark?", lambda messages: '{"answer": "yes"}'))
    yes
    """
    with open_session(env, model, **options) as session:
        return session.ask(question, images, on_question=on_question)


async def ask_async(
    env: AnyEnv, images: object, question: str, model: AnyModel, on_question: OnQuestion | None = None, **options: Any
) -> Answer:
    """`ask` for code with an event loop of its own."""
    session = open_session(env, model, **options)
    try:
        return await session.ask_async(question, images, on_question=on_question)
    finally:
        await session.close_async()
