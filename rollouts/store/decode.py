"""Episodes from lines that hold what viewbox writes, ten times as fast as by pydantic.

msgspec reads and checks a line in one step, into the structures of `line_types.py`.
A line that holds anything else is left to the careful way in `reader.py`, which accepts it or says what is wrong with
it. So this file decides nothing; it only makes what that way would make. The turns become records when they are first
asked for: most scores do not read them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from ...images.ref import ImageRef
from ...images.shown import ShownView
from ...records import Episode, RunConfig, Scores, Task, ToolCall, ToolResult, Turn
from ...utils.frozen import FrozenDict
from .layout import build_image_path
from .line_types import (
    CallLine,
    EpisodeLine,
    ImageLine,
    ResultLine,
    RunConfigLine,
    ScoresLine,
    TokensLine,
    TurnLine,
    ViewLine,
)
from .lines import COUNTS, MAX_BRACKETS, MAX_COMPONENTS, MAX_COUNT, MAX_SCORE

T = TypeVar("T")
MAX_CACHED = 20_000  # paths of images, and texts that many lines share
_SCALARS = frozenset({str, int, float, bool, type(None)})
_EMPTY = FrozenDict()


class UnusualError(ValueError):
    """A line that is left to the careful way."""


_EPISODE, _TOKENS = msgspec.json.Decoder(EpisodeLine), msgspec.json.Decoder(TokensLine | None)


class EpisodeDecoder:
    """Makes the episodes of one folder; `folder` is its absolute path."""

    def __init__(self, folder: str) -> None:
        self._images = _Images(folder)
        self._texts: dict[str, str] = {}

    def decode(self, line: bytes) -> tuple[Episode, Any]:
        """The episode of a line, and the JSON of its `stored_tokens` (empty if it has none).

        Raises:
            UnusualError: the line holds what viewbox does not write, or what only the careful way accepts.
        """
        if len(line) > MAX_BRACKETS:
            raise UnusualError("long")
        try:
            data = _EPISODE.decode(line)
        except (ValueError, RecursionError) as error:  # includes msgspec's own errors
            raise UnusualError(str(error)) from error
        for turn in data.turns:
            for result in turn.tool_results:
                if result.image is None and result.mime_type is not None:
                    raise UnusualError("mime_type")
        return self._make_episode(data), data.stored_tokens

    def make_refs(self, images: list[ImageLine]) -> tuple[ImageRef, ...]:
        """References to images of the folder."""
        return self._images.make_refs(images)

    def _make_episode(self, data: EpisodeLine) -> Episode:
        if data.confidence is not None and not 0.0 <= data.confidence <= 1.0:
            raise UnusualError("confidence")
        task, info = data.task, _freeze_values(data.info)
        for name in COUNTS:
            value = info.get(name, 0)
            if type(value) is not int or not 0 <= value <= MAX_COUNT:
                raise UnusualError(name)
        return _make(
            Episode,
            task=_make(
                Task,
                id=task.id,
                images=self._images.make_refs(task.images),
                prompt=_freeze_values(task.prompt),
                reference=_freeze_values(task.reference),
                metadata=_freeze_values(task.metadata),
            ),
            _make_turns=partial(_make_turns, data.turns, self._images),
            num_turns=sum([turn.role == "assistant" for turn in data.turns]),
            tool_call_count=sum([len(turn.tool_calls) for turn in data.turns]),
            run_call_count=sum(
                [
                    result.error is None or result.arguments is not None or bool(result.raised)
                    for turn in data.turns
                    for result in turn.tool_results
                ]
            ),
            answer=None if data.answer is None else _freeze_values(data.answer),
            end_reason=data.end_reason,
            terminated=data.terminated,
            truncated=data.truncated,
            flags=frozenset(data.flags),
            scores=None if data.scores is None else _make_scores(data.scores),
            run_config=self._make_run_config(data.run_config),
            confidence=data.confidence,
            total_tokens=data.total_tokens,
            environment=self._share(data.environment),
            system_prompt=self._share(data.system_prompt),
            info=info,
            tokens=None,
        )

    def _make_run_config(self, data: RunConfigLine) -> RunConfig:
        return _make(
            RunConfig,
            model_name=self._share(data.model_name),
            temperature=data.temperature,
            seed=data.seed,
            max_tokens=data.max_tokens,
            max_turns=data.max_turns,
            versions=_freeze_values(data.versions),
        )

    def _share(self, text: str) -> str:
        """The same object for a text that many lines hold."""
        if len(self._texts) > MAX_CACHED:
            self._texts.clear()
        return self._texts.setdefault(text, text)


class _Images:
    """References to the images of a folder; it keeps their paths, not the references, which may hold pixels."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._paths: dict[tuple[str, str], str] = {}

    def make_refs(self, images: list[ImageLine]) -> tuple[ImageRef, ...]:
        return tuple([self.make_ref(image) for image in images]) if images else ()

    def make_ref(self, image: ImageLine) -> ImageRef:
        key = image.hash, image.mode
        path = self._paths.get(key)
        if path is None:
            if len(self._paths) > MAX_CACHED:
                self._paths.clear()
            path = self._paths[key] = f"{self.folder}/{build_image_path(*key)}"
        return _make(
            ImageRef,
            hash=image.hash,
            width=image.width,
            height=image.height,
            mode=image.mode,
            uri=path,
            pixels=None,
            folder=self.folder,
        )


def _make(record: type[T], **fields: Any) -> T:
    """A record of fields that are checked and frozen already."""
    made = object.__new__(record)
    object.__setattr__(made, "__dict__", fields)
    return made


def _make_scores(data: ScoresLine) -> Scores:
    values = [value for value in data.components.values() if value is not None]
    if len(data.components) > MAX_COMPONENTS or len(data.faults) > MAX_COMPONENTS:
        raise UnusualError("scores")
    for value in values if data.total is None else (data.total, *values):
        if not -MAX_SCORE <= value <= MAX_SCORE:
            raise UnusualError("scores")
    return _make(
        Scores, total=data.total, components=_freeze_values(data.components), faults=_freeze_values(data.faults)
    )


def _freeze_values(values: Mapping[str, Any]) -> FrozenDict:
    """A `FrozenDict` of what JSON gave."""
    if not values:
        return _EMPTY
    frozen: FrozenDict = FrozenDict.__new__(FrozenDict)
    if not _SCALARS.issuperset(map(type, values.values())):
        values = {key: value if type(value) in _SCALARS else _freeze_value(value) for key, value in values.items()}
    dict.update(frozen, values)
    return frozen


def _freeze_value(value: Any) -> Any:
    if type(value) is dict:
        return _freeze_values(value)
    if type(value) is list:
        if _SCALARS.issuperset(map(type, value)):
            return tuple(value)
        return tuple([_freeze_value(item) for item in value])
    return value


def read_place(stored: Any) -> TokensLine | None:
    """Where the tokens of a line are, from its `stored_tokens` as JSON or as values; None if it has none.

    Raises `ValueError` if it is neither.
    """
    if not stored:
        return None
    return _TOKENS.decode(stored) if isinstance(stored, msgspec.Raw) else msgspec.convert(stored, TokensLine | None)


def _make_turns(turns: list[TurnLine], images: _Images) -> tuple[Turn, ...]:
    return tuple(
        [
            _make(
                Turn,
                role=turn.role,
                content=turn.content,
                tool_calls=tuple([_make_call(call) for call in turn.tool_calls]),
                tool_results=tuple([_make_result(result, images) for result in turn.tool_results]),
                images=images.make_refs(turn.images),
                nudge=turn.nudge,
                views=_make_views(turn.views),
            )
            for turn in turns
        ]
    )


def _make_call(call: CallLine) -> ToolCall:
    arguments = call.arguments if type(call.arguments) is str else _freeze_values(call.arguments)  # type: ignore[arg-type]
    return _make(ToolCall, id=call.id, name=call.name, arguments=arguments)


def _make_result(result: ResultLine, images: _Images) -> ToolResult:
    image = None if result.image is None else images.make_ref(result.image)
    return _make(
        ToolResult,
        tool_name=result.tool_name,
        description=result.description,
        error=result.error,
        image=image,
        mime_type="image/png" if image is not None and result.mime_type is None else result.mime_type,
        facts=_freeze_values(result.facts),
        formatted_results=result.formatted_results,
        call_id=result.call_id,
        arguments=None if result.arguments is None else _freeze_values(result.arguments),
        views=_make_views(result.views),
        raised=result.raised,
    )


def _make_views(views: list[ViewLine]) -> tuple[ShownView, ...]:
    return tuple([ShownView(**msgspec.structs.asdict(view)) for view in views]) if views else ()
