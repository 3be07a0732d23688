"""Immutability for records: frozen containers, and a base class that is also the form in which records are stored.

A record that cannot change can be shared between episodes and threads without copying.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cache
from numbers import Real
from operator import attrgetter
from types import UnionType
from typing import Any, ClassVar, Literal, NoReturn, Self, Union, get_args, get_origin

import msgspec
from msgspec.structs import force_setattr

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
        if not _FROZEN.issuperset(map(type, self.values())):
            dict.update(self, {key: freeze(value) for key, value in self.items()})

    def _raise_frozen(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("a record cannot be changed")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _raise_frozen

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))

    def __reduce__(self) -> tuple[type, tuple[dict[Any, Any]]]:
        return FrozenDict, (dict(self),)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self


EMPTY_DICT = FrozenDict()
_FROZEN.add(FrozenDict)
_PLAIN = frozenset({str, int, float, bool, type(None)})
_EMPTY: tuple[Any, ...] = ()
_SIMPLE = (tuple, list)
_make_dict, _update_dict = FrozenDict.__new__, dict.update
_SEQUENCES, _SETS = (list, tuple), (set, frozenset)
_OTHER = (Real, Decimal)  # numbers that may not be Python's own
_MAPPINGS = (dict, Mapping)  # dict first: asking an abstract class is slow


def freeze(value: Any) -> object:
    """Copy a value with every dict, list and set inside it made immutable; what is immutable is not copied."""
    kind = type(value)
    if kind is dict:
        if not value:
            return EMPTY_DICT
        if not _FROZEN.issuperset(map(type, value.values())):
            value = {key: item if type(item) in _FROZEN else freeze(item) for key, item in value.items()}
        frozen = _make_dict(FrozenDict)
        _update_dict(frozen, value)  # at half the cost of a call of `FrozenDict`
        return frozen
    if kind in _FROZEN:
        return value
    if kind in _SIMPLE and _FROZEN.issuperset(map(type, value)):
        return value if kind is tuple else tuple(value)
    if isinstance(value, _SEQUENCES):
        return tuple([item if type(item) in _FROZEN else freeze(item) for item in value])
    if isinstance(value, _MAPPINGS):
        return FrozenDict(value)
    if isinstance(value, _SETS):
        return frozenset(freeze(item) for item in value)
    return to_plain(value) if getattr(value, "ndim", None) == 0 or isinstance(value, _OTHER) else value


def to_plain(value: Any) -> Any:
    """Return a number or an array of NumPy, torch, `fractions`, `decimal` … as Python's own; anything else as it is."""
    try:
        plain = value.tolist() if hasattr(value, "tolist") else value
        return float(plain) if isinstance(plain, _OTHER) and not isinstance(plain, int | float) else plain
    except Exception:  # more digits than a float has, or a tensor without values
        return value


def thaw(value: object) -> Any:
    """Copy a value, records included, as plain dicts and lists that can be changed or written as JSON."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, PlainRecord):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [thaw(item) for item in value]
    return sort_set(map(thaw, value)) if isinstance(value, set | frozenset) else to_plain(value)


def sort_set(items: Iterable[Any]) -> list[Any]:
    """Return the items of a set in an order that is the same in every process: numbers, then texts, then others.

    >>> sort_set({"b", 10, "a", 9, None})
    [9, 10, 'a', 'b', None]
    """
    return sorted(
        items,
        key=lambda one: (isinstance(one, str), 0, one) if isinstance(one, int | float | str) else (2, 0, repr(one)),
    )


@cache
def _list_loose(record: type["PlainRecord"]) -> tuple[str, ...]:
    """Return the fields that may be given something that is not frozen."""
    return tuple(field.name for field in msgspec.structs.fields(record) if not _is_immutable(field.type))


def _is_immutable(annotation: Any) -> bool:
    is_choice = get_origin(annotation) in (Union, UnionType, Literal)
    return all(one in _FROZEN or type(one) in _FROZEN for one in (get_args(annotation) if is_choice else [annotation]))


@cache
def _build_reader(record: type["PlainRecord"]) -> Callable[[object], object]:
    """Return what reads all fields that count, at once."""
    return attrgetter(*record.list_fields())


class PlainRecord(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """A record whose fields hold nothing that can be changed; it is also the form in which it is stored.

    A record is checked when it is read from JSON, not when it is made. Subclasses may name fields that are no part of
    the JSON (`_beside`: they count neither for equality nor in `repr`), and fields that are left out if they are empty
    (`_sparse`)."""

    _beside: ClassVar[frozenset[str]] = frozenset()
    _sparse: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _FROZEN.add(cls)

    @classmethod
    def list_fields(cls) -> list[str]:
        """Return the names of the fields in the JSON."""
        return [name for name in cls.__struct_fields__ if name not in cls._beside]

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not type(self):
            return self is other or NotImplemented
        read = _build_reader(type(self))
        return bool(read(self) == read(other))

    def __ne__(self, other: object) -> bool:
        return not self == other  # that of a `Struct` compares identities

    def __hash__(self) -> int:
        return hash(getattr(self, self.__struct_fields__[0]))  # its name, or what names it

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.list_fields())
        return f"{type(self).__qualname__}({shown})"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain dicts and lists: what the line of JSON holds."""
        data = {name: thaw(getattr(self, name)) for name in self.list_fields()}
        return {name: value for name, value in data.items() if value or name not in self._sparse}

    def to_json(self) -> str:
        """Return one line of JSON; NaN and infinity are refused."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """Return the record that `to_dict` wrote; raise `StoreError` with the first field that is wrong."""
        try:
            return msgspec.convert(data, cls)
        except ValueError as error:
            raise StoreError(f"{cls.__name__}: {error}") from error

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        """Return the record that `to_json` wrote; raise `StoreError` with the first field that is wrong."""
        try:
            return msgspec.json.decode(line, type=cls)
        except msgspec.ValidationError as error:
            raise StoreError(f"{cls.__name__}: {error}") from error
        except ValueError as error:
            raise StoreError(f"{cls.__name__}: not JSON: {error}") from error


class Record(PlainRecord, frozen=True):
    """Base class of most records: frozen to the bottom when it is made."""

    def __post_init__(self) -> None:
        for name in _list_loose(type(self)):
            value = getattr(self, name)
            if type(value) not in _FROZEN and value is not _EMPTY and (frozen := freeze(value)) is not value:
                force_setattr(self, name, frozen)
