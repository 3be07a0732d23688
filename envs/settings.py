"""Class attributes as checked settings: how `make("digits", canvas=512)` overrides what an author wrote."""

from collections.abc import Mapping
from dataclasses import replace as _replace
from functools import cache
from typing import Any, ClassVar, TypeVar, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from viewbox.configs.validation import describe_errors, describe_type, describe_unknown_key
from viewbox.errors import ConfigError

T = TypeVar("T")


def replace(record: T, **changes: Any) -> T:
    """A copy of a frozen record with some fields changed."""
    return _replace(record, **changes)  # type: ignore[type-var]


@cache
def model_of(cls: type) -> type[BaseModel]:
    """The settings of an environment class as a pydantic model: its annotated public class attributes."""
    hints = get_type_hints(cls, include_extras=True)
    fields: dict[str, Any] = {
        name: (hint, getattr(cls, name))
        for name, hint in hints.items()
        if not name.startswith("_") and get_origin(hint) is not ClassVar and hasattr(cls, name)
    }
    config = ConfigDict(extra="forbid", validate_default=True)
    return create_model(f"{cls.__name__}Settings", __config__=config, **fields)


def checked(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of `cls`, the given ones checked by type and range; raises `ConfigError` naming the setting."""
    model = model_of(cls)
    who = getattr(cls, "name", cls.__name__)
    for name in given:
        if name not in model.model_fields:
            raise ConfigError(f"{who}: {describe_unknown_key('setting', name, model.model_fields)}", key=name)
    try:
        found = model.model_validate(dict(given))
    except ValidationError as error:
        problem = describe_errors(error, model, given)[0]
        raise ConfigError(f"{who}: {problem}", key=problem.key) from error
    for name, value in given.items():
        if isinstance(value, bool) and type(getattr(found, name)) in (
            int,
            float,
        ):  # pydantic takes true for 1, false for 0
            field = model.model_fields[name]
            raise ConfigError(
                f"{who}: {name} = {value}: allowed: {describe_type(field.annotation, field.metadata)}", key=name
            )
    return {name: getattr(found, name) for name in model.model_fields}
