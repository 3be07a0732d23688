"""Immutability for records: frozen containers, and a base class with an exact JSON round trip.

A record that cannot change can be shared between episodes and threads without copying.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, NoReturn, Self

from pydantic import TypeAdapter, ValidationError

from ..errors import StoreError

_FROZEN: set[type] = {str, int, float, bool, type(None)}  # exact types that need no freezing; records join them


class FrozenDict(dict[Any, Any]):
    """A dict that cannot be changed; JSON, pickle and equality work as for a dict, and it can be hashed.

    >>> d = FrozenDict({"a": [1, 2]})
    >>> d["a"]
    (1, 2)
    >>> d["b"] = 1
    Traceback (most recent call last):
    TypeError: a record cannot be changed
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for key, value in self.items():
            if type(value) not in _FROZEN:
                dict.__setitem__(self, key, freeze(value))  # an existing key, so the loop goes on

    def _raise_frozen(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("a record cannot be changed")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _raise_frozen

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type, tuple[dict[Any, Any]]]:
        return FrozenDict, (dict(self),)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self


_FROZEN.add(FrozenDict)
_PLAIN = frozenset({str, int, float, bool, type(None)})
_EMPTY: tuple[Any, ...] = ()
_IMMUTABLE = (tuple, frozenset)
_SEQUENCES, _SETS = (list, tuple), (set, frozenset)
_MAPPINGS = (dict, Mapping)  # dict first: asking an abstract class is slow


def freeze(value: Any) -> Any:
    """Copy a value with every dict, list and set inside it made immutable; what is immutable is not copied."""
    kind = type(value)
    if kind in _FROZEN:
        return value
    if kind in _IMMUTABLE and _FROZEN.issuperset(map(type, value)):
        return value
    if isinstance(value, _SEQUENCES):
        return tuple([item if type(item) in _FROZEN else freeze(item) for item in value])
    if isinstance(value, _MAPPINGS):
        return FrozenDict(value)
    if isinstance(value, _SETS):
        return frozenset(freeze(item) for item in value)
    return value


def thaw(value: Any) -> Any:
    """Copy a value, records included, as plain dicts and lists that can be changed or written as JSON."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [thaw(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(thaw(item) for item in value)
    return value


@cache
def _get_adapter(record: type) -> Any:
    return TypeAdapter(record)


class Record:
    """Base class of frozen dataclasses: freezes their fields and gives them `to_json` and `from_json`.

    Fields with the metadata `{"beside": True}` are stored beside the JSON, not in it. Fields with the metadata
    `{"sparse": True}` are left out of it if they are empty.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _FROZEN.add(cls)

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            if type(value) not in _FROZEN and value is not _EMPTY:
                object.__setattr__(self, name, freeze(value))

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain dicts and lists: what the line of JSON holds."""
        return {
            item.name: thaw(getattr(self, item.name))
            for item in fields(self)  # type: ignore[arg-type]
            if not item.metadata.get("beside") and not (item.metadata.get("sparse") and not getattr(self, item.name))
        }

    def to_json(self) -> str:
        """One line of JSON; NaN and infinity are refused."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The record that `to_dict` wrote; raises `StoreError` with the first field that is wrong."""
        try:
            record: Self = _get_adapter(cls).validate_python(data)  # type: ignore[arg-type, unused-ignore]
            return record
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise StoreError(f"{cls.__name__}.{where}: {first['msg']} (given {first['input']!r:.80})") from error

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        """The record that `to_json` wrote."""
        try:
            return cls.from_dict(json.loads(line))
        except json.JSONDecodeError as error:
            raise StoreError(f"{cls.__name__}: not JSON: {error}") from error
