"""The words for findings: `findings.yaml`, and a file of the user's own that adds to it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...configs import yaml_reader
from ...errors import ConfigError

_WORD = re.compile(r"\w(.*\w)?")  # what can be found between other words


@dataclass(frozen=True)
class FindingNames:
    """Findings by the words for them.

    >>> SHIPPED.rename("Left pleural effusion, no enlarged heart.")
    'Left effusion, no cardiomegaly.'
    """

    words: Mapping[str, str]  # each spelling, in lower case: the finding
    sided: frozenset[str]

    @cached_property
    def tokens(self) -> Mapping[str, str]:
        """The finding by the one word that stands for it in a renamed text."""
        return {_join(name): name for name in self.words.values()}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest = sorted(self.words, key=len, reverse=True)
        return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest))})\b", re.IGNORECASE)

    def rename(self, value: Any) -> Any:
        """Return a text, or a list of texts, with one word for a finding in the place of each spelling."""
        if isinstance(value, list | tuple):
            return [self.rename(item) for item in value]
        if not isinstance(value, str):
            return value
        return self._pattern.sub(lambda found: _join(self.words[found[0].lower()]), value)

    def extend(self, groups: Any, origin: str) -> "FindingNames":
        """Return these with those of a file, which are by group and finding. Raise `ConfigError`."""
        words, sided = dict(self.words), set(self.sided)
        try:
            for group, findings in groups.items():
                if group not in ("sided", "unsided"):
                    raise ValueError(f"{group!r}")
                for name, spellings in findings.items():
                    name, is_known = name.lower(), name.lower() in words
                    if isinstance(spellings, str) or (is_known and (name in sided) != (group == "sided")):
                        raise ValueError(f"{group}: {name}")
                    for word in (name, *map(str.lower, spellings)):
                        if _WORD.fullmatch(word) is None or words.setdefault(word, name) != name:
                            raise ValueError(f"{name}: {word!r}")
                    sided |= {name} if group == "sided" else set()
            tokens = [_join(name) for name in {*words.values()}]
            if "" in tokens or len(tokens) > len({*tokens}):
                raise ValueError("two findings that differ in no letter of a to z, or one without any")
        except (AttributeError, TypeError, ValueError) as error:
            allowed = "sided and unsided, each a mapping from findings to lists of words, each word of one finding"
            raise ConfigError(f"{origin}: {error!s:.200}; allowed: {allowed}", key="aliases") from error
        return FindingNames(words, frozenset(sided))


def _join(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


SHIPPED = FindingNames({}, frozenset()).extend(yaml_reader.read_shipped(__package__, "findings.yaml"), "findings.yaml")
