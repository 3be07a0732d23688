"""The words for findings: `findings.yaml`, and a file of the user's own that adds to it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...configs import yaml_reader
from ...errors import ConfigError
from ...utils.values import to_text

GROUPS = ("sided", "unsided")


@dataclass(frozen=True)
class FindingNames:
    """Findings by the words for them. A finding of several words is one word in a text that `rename` returns.

    >>> SHIPPED.rename("Left pleural effusion, no enlarged heart.")
    'Left effusion, no cardiomegaly.'
    """

    words: Mapping[str, str]  # each spelling, in lower case: the finding
    sided: frozenset[str]

    @cached_property
    def tokens(self) -> Mapping[str, str]:
        """The finding by the one word that stands for it in a renamed text."""
        return {_join(name): name for name in dict.fromkeys(self.words.values())}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest = sorted(self.words, key=len, reverse=True)
        return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest))})\b", re.IGNORECASE)

    def rename(self, text: str) -> str:
        """Return a text with the one word of a finding in the place of each spelling."""
        return self._pattern.sub(lambda found: _join(self.words[found[0].lower()]), text)

    def rename_all(self, value: Any) -> Any:
        """Return an answer, or a list of accepted ones, with its texts renamed."""
        if isinstance(value, list | tuple):
            return [self.rename_all(one) for one in value]
        return self.rename(value) if isinstance(value, str) else value

    @classmethod
    def read(cls, values: Any, origin: str, base: "FindingNames | None" = None) -> "FindingNames":
        """Return those of a file's values, added to `base`. Raise `ConfigError` for what is no such file."""
        words = dict(base.words) if base else {}
        sided = set(base.sided) if base else set()
        for group, name, spelling in _list_words(values, origin):
            key = spelling.strip().lower()
            if words.setdefault(key, name) != name:
                both = f"{words[key]} and {name}"
                raise ConfigError(f"{origin}: {spelling!r} stands for {both}; allowed: one finding", key="aliases")
            if group == "sided":
                sided.add(name)
        return cls(words, frozenset(sided))


def _list_words(values: Any, origin: str) -> Iterator[tuple[str, str, str]]:
    groups = values if isinstance(values, Mapping) else {"": None}
    for group, findings in groups.items():
        if group not in GROUPS or not isinstance(findings, Mapping):
            allowed = "sided and unsided, each a mapping from findings to lists of words"
            raise ConfigError(f"{origin}: {str(group)[:80]!r}; allowed: {allowed}", key="aliases")
        for name, spellings in findings.items():
            if not _join(str(name)) or not isinstance(spellings, list):
                allowed = "a list of words under a finding in letters"
                raise ConfigError(f"{origin}: {group}.{str(name)[:80]}; allowed: {allowed}", key="aliases")
            yield from ((group, str(name).lower(), to_text(one)) for one in (name, *spellings) if to_text(one).strip())


def _join(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def read_names(path: str | None) -> FindingNames:
    """Return the shipped words, with those of a file. Raise `ConfigError`."""
    if path is None:
        return SHIPPED
    return FindingNames.read(yaml_reader.read(Path(path)).values, f"aliases = {path!r}", SHIPPED)


SHIPPED = FindingNames.read(yaml_reader.read_shipped(__package__, "findings.yaml"), "findings.yaml")
