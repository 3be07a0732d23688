"""Whether a value fits the answer that an environment declares, by pydantic model or JSON Schema.

One rule is for values of another JSON type than the answer's. A string that is exactly how JSON writes a number, true,
false or null is that value, where the schema allows the value and no such string: "3.5" is 3.5, while "3.50", "95%" and
"Yes" stay strings. A whole float is an integer where only integers are allowed, and a word in another case the only
choice that it can be. Nothing else is converted: true is no number, and 1 is not true.

A key that is not declared is refused if it is near one that is missing. Any other is allowed, and told to the caller.

A declaration is checked, too: pydantic checks an answer in one call that nothing can interrupt, so a model that lets
the time grow without bounds is refused.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache
from re import Pattern
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, RootModel, ValidationError

from ..errors import ConfigError, ToolError, describe_unknown, find_nearest, show_json
from ..tools.arguments import is_number_list
from ..utils.box_paths import BoxPath, convert_at
from ..utils.docstrings import restore_docstring
from ..utils.frozen import sort_set, thaw
from ..utils.json_schema import Violation, check_schema, describe_allowed, find_violation, list_types, write_path
from .contract import AuthoredEnv
from .parsing.objects import find_reference

_MAX_OPTIONS = 64  # readings of a value; of those, and of references inside each other, further ones are not looked at
_MAX_REFERENCES = 8
_MAX_UNKNOWN, _MAX_NAME = 32, 80  # keys of an object that may be misspelt ones, and characters of each
_OUTER = ("$ref", "allOf", "anyOf", "oneOf")
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]{0,39})(?:[.][0-9]{1,40})?(?:e[-+]?[0-9]{1,3})?")
_TYPES = {"string": str, "boolean": bool, "null": type(None), "array": list, "object": dict}

Options = Sequence[Mapping[str, Any]]


def fit_schema(env: AuthoredEnv, answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer as the schema wants it. Raise `ToolError`, written for the model, if it does not fit."""
    schema = env.answer_format.schema
    if schema is None:
        return answer
    answer = _Coercion(schema, env.answer).convert(_unfold_boxes(env, answer), [schema])
    if isinstance(env.answer, type):
        return _fit_model(env.answer, answer, schema)
    problem = find_violation(answer, schema)
    if problem is not None:
        raise ToolError(str(problem))
    check_finite(answer)
    return answer


def has_unread_keys(env: AuthoredEnv, answer: Mapping[str, object]) -> bool:
    """Return whether an answer that fits has a key that nothing reads."""
    if (schema := env.answer_format.schema) is None:
        return False
    coercion = _Coercion(schema, env.answer)
    coercion.convert(_unfold_boxes(env, thaw(answer)), [schema])
    return bool(coercion.unknown - (set() if isinstance(env.answer, type) else {"confidence"}))  # which is kept


def _fit_model(model: type[BaseModel], answer: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    try:
        checked = model.model_validate_json(json.dumps(answer), strict=True)  # it converts nothing: see `_Coercion`
    except ValidationError as error:
        raise ToolError(_describe_refusal(error.errors(include_url=False), answer, schema)) from error
    except RecursionError as error:
        raise ToolError("the answer is nested too deep") from error
    except UnicodeError as error:
        raise ToolError(f"the answer is not Unicode: {error}") from error
    try:
        written = _sort_sets(checked, checked.model_dump(mode="json"))
    except (ValueError, RecursionError) as error:
        raise ToolError(f"the answer cannot be written as JSON: {error}") from error
    if not isinstance(written, dict):
        raise ToolError("the answer must be an object")
    check_finite(written)
    return written


def _sort_sets(value: Any, written: Any) -> Any:
    """Return what pydantic wrote of a value with the items of every set in the same order in every process."""
    if isinstance(value, RootModel):
        return _sort_sets(value.root, written)
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        named = {alias: name for name, field in fields for alias in (field.alias, field.serialization_alias) if alias}
        return {name: _sort_sets(getattr(value, named.get(name, name), None), item) for name, item in written.items()}
    if isinstance(written, dict):
        inner = value.values() if isinstance(value, Mapping) else [getattr(value, name, None) for name in written]
        return {name: _sort_sets(one, item) for (name, item), one in zip(written.items(), inner, strict=False)}
    if not isinstance(written, list) or not isinstance(value, Sequence | Set):
        return written
    items = list(map(_sort_sets, value, written))
    return sort_set(items) if isinstance(value, Set) else items


def _describe_refusal(problems: Sequence[Any], answer: dict[str, Any], schema: Mapping[str, Any]) -> str:
    """Return what pydantic refuses in the words of the JSON Schema, or else in its own."""
    about_keys = ("missing", "extra_forbidden")
    places = [write_path(one["loc"][:-1] if one["type"] in about_keys else one["loc"]) for one in problems]
    try:
        violation = find_violation(answer, schema)
    except ConfigError:  # a pattern of pydantic's own
        violation = None
    path = None if violation is None else violation.path
    if path is not None and (path in places or (path and any(place.startswith(path) for place in places))):
        return str(violation)
    first = problems[0]
    if first["type"] in ("value_error", "assertion_error"):  # an author's words
        return str(Violation(places[0], "", first["msg"].partition(", ")[2]))
    return str(Violation(places[0], "", first["msg"].replace("Input should be", "must be"), show_json(first["input"])))


def check_finite(value: object, *path: object) -> None:
    """Raise `ToolError` with the field of a number that no file can hold: NaN, an infinity, or too many digits."""
    if isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            check_finite(item, *path, key)
    elif isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        raise ToolError(f"{write_path(path)[:120]}: must be a finite number")


_BOX_KEYS = ("bbox_2d", "bbox", "box", "bounding_box")  # of models, where an answer has another name for its box
_SIDES = (("x1", "y1", "x2", "y2"), ("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"))


def _unfold_boxes(env: AuthoredEnv, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with its boxes as lists of four numbers, if a model wrote them in another form that has one
    reading: under a common name, by the names of the sides, as two corners, or as the only box of a list."""
    names = (env.answer_format.schema or {}).get("properties", {})
    field, is_list, _ = BoxPath.parse(env.boxes[0] if len(env.boxes) == 1 else "[]")
    others = [name for name in _BOX_KEYS if name in answer and name not in names]
    if not is_list and field not in answer and len(others) == 1:
        answer = {field if name == others[0] else name: item for name, item in answer.items()}
    for path in env.boxes:
        with suppress(ToolError):  # the schema says it better
            answer = convert_at(answer, path, lambda box, name: _unfold_box(box))
    return answer


def _unfold_box(box: Any) -> Any:
    if isinstance(box, dict):
        return next(([box[side] for side in sides] for sides in _SIDES if set(sides) == box.keys()), box)
    if isinstance(box, list) and len(box) in (1, 2) and all(is_number_list(part, 4 // len(box)) for part in box):
        return [side for part in box for side in part]
    return box


# ---------------------------------------------------------------------- values of another type
class _Coercion:
    """Gives an answer's scalars the types that a schema wants, by the rule above; it may still not fit.

    `unknown` are the keys that no schema declares, by their paths.

    >>> size, sure = {"type": ["number", "null"]}, {"type": "boolean"}
    >>> schema = {"properties": {"size": size, "sure": sure, "names": {"items": {"type": "string"}}}}
    >>> _Coercion(schema).convert({"size": "3.5", "sure": "true", "names": ["3"]}, [schema])
    {'size': 3.5, 'sure': True, 'names': ['3']}
    >>> _Coercion(schema).convert({"size": "3.50"}, [schema])
    {'size': '3.50'}
    """

    def __init__(self, root: Mapping[str, Any], declared: object = None) -> None:
        self.root = root
        self._other_names = _list_other_names(declared) if isinstance(declared, type) else frozenset()
        self.unknown: set[str] = set()
        self._expanded: dict[tuple[int, ...], list[Mapping[str, Any]]] = {}

    def convert(self, value: object, specs: Sequence[object], path: tuple[object, ...] = ()) -> Any:
        """Return a copy of the value as one of the schemas `specs` wants it. Raise `ToolError` for true, false or a
        number where only the other is allowed, and for a key that is near a missing one."""
        options = self._expanded.get(key := tuple(map(id, specs)))
        if options is None:
            options = [option for spec in specs for option in self._expand(spec)][:_MAX_OPTIONS]
            self._expanded[key] = options
        if not options:
            return value
        if isinstance(value, dict):
            self._check_keys(value, options, path)
            return {
                name: self.convert(item, list(_iter_fields(options, name)), (*path, name))
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [
                self.convert(item, list(_iter_items(options, place)), (*path, place))
                for place, item in enumerate(value)
            ]
        fits, settled = _settle(value, options)
        if not fits and isinstance(value, str) and _SCALAR.fullmatch(value):
            decoded = json.loads(value)
            if json.dumps(decoded) == value:
                fits, settled = _settle(decoded, options)
        if not fits and value in (0, 1) and _settle(int(value) if isinstance(value, bool) else value == 1, options)[0]:
            allowed = " or ".join(dict.fromkeys(filter(None, map(describe_allowed, options))))
            raise ToolError(str(Violation(write_path(path), "type", f"allowed: {allowed}", show_json(value))))
        return settled if fits else value

    def _check_keys(self, value: Mapping[str, Any], options: Options, path: tuple[object, ...]) -> None:
        """Note the keys that no schema declares; raise `ToolError` for one that is near a missing one."""
        objects = [one for one in options if "object" in list_types(one, "object") and _get_choices(one) is None]
        if not objects or not all("properties" in option for option in objects):
            return
        names = {name for option in objects for name in option["properties"]}
        unknown = [key for key in value if key not in names and key not in self._other_names]
        is_open = any(option.get("additionalProperties") or "patternProperties" in option for option in objects)
        for key in unknown[:_MAX_UNKNOWN]:  # of names that are open only another spelling is near
            if find_nearest(key[:_MAX_NAME], names - value.keys(), cutoff=1.0 if is_open else 0.7) is not None:
                problem = describe_unknown("key", key[:_MAX_NAME], names - value.keys(), show_json)
                raise ToolError(str(Violation(write_path(path), "properties", problem)))
        self.unknown.update(write_path((*path, key)) for key in unknown if not is_open)

    def _expand(self, spec: Any, depth: int = 0) -> list[Mapping[str, Any]]:
        """Return the schemas that a value may fit, without references and compounds."""
        if not isinstance(spec, Mapping) or depth > _MAX_REFERENCES:
            return [{}]
        options: list[Mapping[str, Any]] = [{key: item for key, item in spec.items() if key not in _OUTER}]
        every = [find_reference(self.root, str(spec["$ref"]))] if "$ref" in spec else []
        for choices in (*([part] for part in [*every, *spec.get("allOf", ())]), spec.get("anyOf"), spec.get("oneOf")):
            if choices:
                inner = [option for choice in choices for option in self._expand(choice, depth + 1)]
                options = [_merge(one, other) for other in options for one in inner][:_MAX_OPTIONS]
        return options


def _merge(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = {**inner.get("properties", {}), **outer.get("properties", {})}
    return {**inner, **outer, **({"properties": properties} if properties else {})}


def _iter_fields(options: Options, name: str) -> Iterator[Any]:
    for option in options:
        spec = option.get("properties", {}).get(name, option.get("additionalProperties"))
        yield from (one for one in (spec, *option.get("patternProperties", {}).values()) if isinstance(one, Mapping))


def _iter_items(options: Options, place: int) -> Iterator[Any]:
    for option in options:
        first = option.get("prefixItems", ())
        spec = first[place] if place < len(first) else option.get("items")
        if isinstance(spec, Mapping):
            yield spec


def _get_choices(option: Mapping[str, Any]) -> Sequence[Any] | None:
    return [option["const"]] if "const" in option else option.get("enum")


def _settle(value: Any, options: Options) -> tuple[bool, Any]:
    """Return whether a scalar fits one of the schemas, and the scalar as that schema writes it."""
    for option in options:
        choices = _get_choices(option)
        if choices is not None:
            for choice in choices if value in choices else ():
                if choice == value and isinstance(choice, bool) == isinstance(value, bool):
                    return True, choice
            continue
        kinds = list_types(option)
        if not kinds:
            return True, value
        for kind in kinds:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if kind == "integer" and is_number and value == value // 1 and abs(value) < float("inf"):
                return True, int(value)
            if (kind == "number" and is_number) or isinstance(value, _TYPES.get(kind, ())):
                return True, value
    words = [choice for option in options for choice in _get_choices(option) or () if isinstance(choice, str)]
    same = {word for word in words if isinstance(value, str) and word.casefold() == value.casefold()}
    return (True, same.pop()) if len(same) == 1 else (False, value)


# ---------------------------------------------------------------------- what an environment declares
def check_declaration(answer: type[BaseModel] | Mapping[str, Any] | None) -> None:
    """Raise `ConfigError` for an answer that takes unbounded time to check, or a schema that cannot be used."""
    if isinstance(answer, type):
        _check_model(answer)
    elif answer is not None:
        check_schema(answer)


@cache
def runs_code(env: Any) -> bool:
    """Return whether an author's code sees an answer: `validate_answer`, a validator, or a serializer."""
    replaced: bool = env.validate_answer is not AuthoredEnv.validate_answer
    answer: Any = env.answer
    return replaced or (isinstance(answer, type) and any(map(_is_code, _iter_core_parts(answer))))


@cache
def _list_other_names(answer: type[BaseModel]) -> frozenset[str]:
    """Return the keys that a model reads besides those of its JSON Schema: further aliases, fields by their names."""
    names: list[Any] = []
    for part in _iter_core_parts(answer):
        model: Any = part.get("cls") if part.get("type") == "model" else None
        for name, field in getattr(model, "model_fields", {}).items():
            alias, config = field.validation_alias, model.model_config
            names += alias.choices if isinstance(alias, AliasChoices) else [alias]
            names += [name] if config.get("populate_by_name") or config.get("validate_by_name") else []
    return frozenset(str(one.path[0] if isinstance(one, AliasPath) else one) for one in names)


@cache
def _check_model(model: type[BaseModel]) -> None:
    if any(map(_is_backtracking, _iter_core_parts(model))):
        raise ConfigError(
            f"{model.__name__}: a pattern is matched by Python's `re`, which may never end; allowed: a pattern given "
            "as text, without regex_engine='python-re'",
            key="answer",
        )
    for part in _iter_core_parts(model):
        restore_docstring(part.get("cls"))
        if isinstance(part.get("pattern"), str):
            check_schema({"pattern": part["pattern"]})
    definitions = model.model_json_schema().get("$defs", {})
    for name, part in definitions.items():
        unions = [one["anyOf"] for one in _iter_parts(part) if isinstance(one.get("anyOf"), list)]
        if any(_branches_into(name, union, definitions) for union in unions):
            raise ConfigError(
                f"{model.__name__}: two members of a union in {name} hold {name} again, so the time to check an answer "
                "doubles with each level; allowed: Field(discriminator=...), or one such member",
                key="answer",
            )


def _iter_core_parts(model: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every part of a model's pydantic core schema."""
    model.model_json_schema()  # completes a model with forward references
    return _iter_parts(model.__pydantic_core_schema__, "metadata", "config")


def _iter_parts(schema: Any, *skipped: str) -> Iterator[Mapping[str, Any]]:
    """Yield every mapping in a schema, but what is under the keys `skipped`."""
    if isinstance(schema, Mapping):
        yield schema
        schema = [item for key, item in schema.items() if key not in skipped]
    if isinstance(schema, list | tuple):
        for item in schema:
            yield from _iter_parts(item, *skipped)


def _is_backtracking(part: Mapping[str, Any]) -> bool:
    config = part.get("config")
    by_config = isinstance(config, Mapping) and config.get("regex_engine") == "python-re"
    return by_config or part.get("regex_engine") == "python-re" or isinstance(part.get("pattern"), Pattern)


def _is_code(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    is_function = isinstance(kind, str) and kind.startswith("function-")
    return is_function or any(part.get(key) for key in ("custom_init", "post_init", "computed_fields"))


def _branches_into(name: str, union: list[Any], definitions: Mapping[str, Any]) -> bool:
    """Return whether an answer can be read as two members of the union that both hold `name`: two objects, or two
    lists."""
    kinds = Counter(_get_kind(member, definitions) for member in union if name in _find_references(member, definitions))
    return any(count > 1 for count in kinds.values())


def _get_kind(member: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    seen: set[str] = set()
    while isinstance(member.get("$ref"), str) and member["$ref"] not in seen:
        seen.add(member["$ref"])
        member = definitions.get(member["$ref"].rpartition("/")[2], {})
    return str(member.get("type", "object"))


def _find_references(schema: Any, definitions: Mapping[str, Any]) -> set[str]:
    """Return the definitions that a part reaches."""
    found: set[str] = set()
    pending = [schema]
    while pending:
        for part in _iter_parts(pending.pop()):
            reference = part.get("$ref")
            name = reference.rpartition("/")[2] if isinstance(reference, str) else None
            if name is not None and name not in found:
                found.add(name)
                pending.append(definitions.get(name))
    return found
