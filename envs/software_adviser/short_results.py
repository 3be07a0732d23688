"""Search results in a few words, for models whose context is short: the name, and the facts that a config picks."""

import json
from dataclasses import dataclass, replace
from typing import Literal

from viewbox.envs.software_adviser.software import SoftwareTool
from viewbox.envs.software_adviser.tools import SearchContext
from viewbox.envs.tools.results import ToolOutput
from viewbox.envs.tools.search.wording import make_line

Shown = Literal["tasks", "modalities", "dimensions", "formats", "license", "gpu", "demo", "repository"]
MAX_ITEM = 300  # characters of a line


@dataclass(frozen=True)
class ShortContext(SearchContext):
    """A search whose text names the software and the facts `shown`; what it finds is the same."""

    shown: tuple[Shown, ...] = ()
    numbered: bool = False

    def search(self, query: str) -> ToolOutput:
        output = super().search(query)
        found = [self.retriever.by_name[name] for name in output.facts["names"]]
        lines = [write_short(one, self.shown) for one in found]
        if self.numbered:
            lines = [f"{number}. {line}" for number, line in enumerate(lines, 1)]
        return replace(output, text="\n".join(lines)) if found else output


def write_short(software: SoftwareTool, shown: tuple[Shown, ...]) -> str:
    """A line of JSON with the name and some facts, in the form in which an answer repeats the name.

    >>> tool = SoftwareTool(
    ...     name="A", repository="https://github.com/o/a", tasks=("denoising",), modalities=("CT",), features="F.",
    ...     dimensions=("2D", "3D"))
    >>> write_short(tool, ("dimensions", "license"))
    '{"name": "A", "dimensions": "2D, 3D", "license": "unknown"}'
    """
    facts = {name: getattr(software, name) for name in shown}
    told = {name: ", ".join(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()}
    return make_line(
        json.dumps({"name": software.name, **{name: text or "unknown" for name, text in told.items()}}), MAX_ITEM
    )
