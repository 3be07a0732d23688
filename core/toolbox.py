"""The tools that an environment knows, by name, with the limits of their calls and their schemas."""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from functools import lru_cache
from typing import Any

from ..images.coordinates import Coordinates
from ..tools import Tool
from ..utils.frozen import FrozenDict


class Toolbox(Mapping[str, Tool]):
    """Tools by name.

    Args:
        tools: built-in ones, the environment's own, and those of its specialists.
        max_calls: calls of a tool in an episode, where they differ from the tool's own limit.
        coordinates: how the model writes points and boxes.
        max_turns: of an episode; in a single turn no tool can be called, and none is described.

    >>> from viewbox.tools import TOOLS
    >>> box = Toolbox(TOOLS, {"zoom": 3})
    >>> box.get_max_calls("zoom"), box.build_schemas(("zoom",))[0]["function"]["name"]
    (3, 'zoom')
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        max_calls: Mapping[str, int] = FrozenDict(),
        coordinates: Coordinates = "unit",
        max_turns: int = 2,
    ) -> None:
        self._tools, self._max_calls, self._coordinates, self._max_turns = tools, max_calls, coordinates, max_turns
        self.build_schemas = lru_cache(maxsize=256)(self._build_schemas)

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def get_max_calls(self, name: str) -> int | None:
        """Return how often a tool may be called in an episode; None if it has no limit of its own."""
        return self._max_calls.get(name, self._tools[name].max_calls)

    def takes_pictures(self, names: Iterable[str]) -> bool:
        """Return whether one of these tools takes pictures by their names."""
        return any(self._tools[name].takes_pictures for name in names)

    def refuse_all(self) -> "Toolbox":
        """Return the same tools, described as before, of which no call is allowed."""
        refusing = copy(self)
        refusing._max_calls = dict.fromkeys(self._tools, 0)
        return refusing

    def _build_schemas(self, names: tuple[str, ...]) -> tuple[Mapping[str, Any], ...]:
        """The tools of these names in the OpenAI function format; none if there is one turn only."""
        return tuple(
            FrozenDict(self._tools[name].build_schema(self._coordinates, max_calls=self.get_max_calls(name)))
            for name in (names if self._max_turns > 1 else ())
        )
