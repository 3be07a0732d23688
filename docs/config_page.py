"""Prints `docs/configuration.md` from the code it describes: `python docs/config_page.py > docs/configuration.md`.

Types, limits and defaults are those that the code checks; a test compares the page with it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args

import yaml
from pydantic import BaseModel
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic.fields import FieldInfo

from viewbox.configs.schema import Config
from viewbox.configs.sections import RolloutSection
from viewbox.configs.validation import describe_type, get_section_model
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.core.settings import model_of
from viewbox.engines.table import get_engine
from viewbox.envs import load_class
from viewbox.registry import ENGINES, ENVIRONMENTS
from viewbox.rewards import Component, Reward
from viewbox.rewards.declare import COMPONENT_KEYS, get_reward_class, list_reward_types
from viewbox.tools import to_tool_names
from viewbox.tools.specialists import get_specialist_class, list_kinds
from viewbox.tools.specialists.models.model import ModelSpecialist
from viewbox.training.precision import LEARNING_RATES
from viewbox.training.trainer_args import CHOICES, OWNED, REFUSED, USED_BY_SFT, get_defaults
from viewbox.utils.frozen import thaw

HEAD = """# Configuration

Printed by `python docs/config_page.py` from the code that checks it; do not edit. `viewbox config` prints it too.

A run is one YAML file of sections. `viewbox train FILE key.path=value …` overrides single keys, and
`viewbox train FILE --dry-run` checks everything and prints what it resolves to. An unknown key, a wrong type or a
contradiction ends with status 2 and one message that names file, line, key, value and what is allowed.

Plain values are read as YAML 1.2 says: `010` is ten, `0o10` eight, and `no`, `off`, `1:30` and `1_000` are text.
Numbers are finite; bytes are an integer, or text such as 2GiB or 500MB; where the default is `null`, null may be
written. In every path `~`, `~name`, `$NAME` and `${NAME}` are replaced when it is read, also in `env.name` and in the
path of a reward's function; a variable that is not set is an error. The run's own config.yaml holds the whole path of
the model, of `train.episodes` and of the folders of `log`, and `env` and `reward` as you wrote them."""

ENV = """Write the settings below in `env` beside `name`, and in `env.eval` if held-out tasks need other values. The
settings of your own environment are its annotated class attributes."""

SHARED = "Settings of every environment, also your own. Where one has another default, its section below says so."

SEVERAL = "Keys of several, which their sections name, with the default if it is another:"

SPECIALISTS = """A specialist of `env.specialists` is chosen by its `kind`; the other keys are those of its class. All
kinds have these:"""

REWARD = """A reward is chosen by its `type` ([rewards.md](rewards.md) has the formulas); the other keys are those of
its class, and `name`: its name in logs, if it is not a component. A component of a `combined` reward has two more:"""

TRAIN = """Every other key is an argument of TRL's `GRPOConfig` (`method: grpo`) or of transformers'
`TrainingArguments` (`method: sft`), checked by name and type. viewbox has defaults of its own for these:"""

LEARNING_RATE = """The default learning rate depends on what is trained. LoRA learns best at about ten times the rate
of full fine-tuning (Schulman et al. 2025, *LoRA Without Regret*). The rates for every weight are the defaults of TRL's
`GRPOConfig` and `SFTConfig`; the one for supervised LoRA is that of QLoRA (Dettmers et al. 2023)."""


def build_page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for name, field in Config.model_fields.items():
        parts += [f"## `{name}`", *_RENDERERS[name]()] if name in _RENDERERS else list(_render_section(name, field))
    return "\n\n".join(parts) + "\n"


def _render_section(name: str, field: FieldInfo) -> Iterator[str]:
    model = get_section_model(field.annotation)
    yield f"## `{name}`"
    yield from _render_model(name, model)


def _render_model(path: str, model: type[BaseModel]) -> Iterator[str]:
    """Yield the description of a section, its keys, and the sections inside it."""
    if model.__doc__:
        yield model.__doc__.strip()
    yield _render_fields(model.model_fields)
    for name, field in model.model_fields.items():
        inner = get_section_model(field.annotation)
        if inner is not None:
            yield f"### `{path}.{name}`"
            yield from _render_model(f"{path}.{name}", inner)


def _render_env() -> Iterator[str]:
    yield from _render_model("env", get_section_model(Config.model_fields["env"].annotation))
    yield ENV
    yield "### Shared settings"
    yield SHARED
    shared = model_of(BaseMultiTurnEnv).model_fields
    yield _render_fields(shared)
    yield SEVERAL
    classes: dict[str, type] = {name: load_class(name) for name in sorted(ENVIRONMENTS)}
    fields = {name: model_of(cls).model_fields for name, cls in classes.items()}
    several = _find_repeated(fields.values(), shared)
    yield _render_fields(several)
    for name, cls in classes.items():
        yield f"### `env.name: {name}`"
        yield _get_first_paragraph(cls)
        yield from _render_own_fields(fields[name], shared, several)
    yield "### Specialists"
    yield SPECIALISTS
    kinds = {kind: get_specialist_class(kind) for kind in list_kinds()}
    every = _find_common([cls.model_fields for cls in kinds.values()])
    models = _find_common([cls.model_fields for cls in kinds.values() if issubclass(cls, ModelSpecialist)])
    yield _render_fields(every)
    yield "Kinds that run a model have these, too:"
    yield _render_fields({name: field for name, field in models.items() if name not in every})
    yield SEVERAL
    several = _find_repeated((cls.model_fields for cls in kinds.values()), {**every, **models})
    yield _render_fields(several)
    for kind, specialist in kinds.items():
        yield f"### `env.specialists.NAME.kind: {kind}`"
        yield _get_first_paragraph(specialist)
        shared = models if issubclass(specialist, ModelSpecialist) else every
        yield from _render_own_fields(specialist.model_fields, shared, several)
    yield from _render_parts_of_specialists()


def _find_common(models: Sequence[Mapping[str, FieldInfo]]) -> dict[str, FieldInfo]:
    """Return the fields that all have with one type and one meaning."""
    return {
        name: field
        for name, field in models[0].items()
        if all(name in fields and _is_same(fields[name], field) for fields in models)
    }


def _find_repeated(
    models: Iterable[Mapping[str, FieldInfo]], shared: Mapping[str, FieldInfo] = MappingProxyType({})
) -> dict[str, FieldInfo]:
    """Return the fields that at least two have with one type and one meaning, and that are not shared by all."""
    fields = [(name, field) for model in models for name, field in model.items()]
    own = [(name, field) for name, field in fields if not (name in shared and _is_same(field, shared[name]))]
    repeated: dict[str, FieldInfo] = {}
    for name, field in own:
        if sum(other == name and _is_same(one, field) for other, one in own) > 1:
            repeated.setdefault(name, field)
    return repeated


def _is_same(field: FieldInfo, other: FieldInfo) -> bool:
    return (field.annotation, field.metadata, field.description) == (
        other.annotation,
        other.metadata,
        other.description,
    )


def _render_own_fields(
    fields: Mapping[str, FieldInfo],
    shared: Mapping[str, FieldInfo],
    several: Mapping[str, FieldInfo] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield the defaults of shared keys that are others here, the keys that several have, and the others."""
    same = {name for name, field in fields.items() if name in shared and _is_same(field, shared[name])}
    also = {name for name, field in fields.items() if name in several and _is_same(field, several[name])} - same
    changed = {name for name in same if _get_default(fields[name]) != _get_default(shared[name])}
    own = {name: field for name, field in fields.items() if name not in same | also}
    if changed:
        yield f"Other defaults: {'; '.join(_list_keys(changed, fields, shared))}."
    if also:
        yield f"Also {'; '.join(_list_keys(also, fields, several))}."
    if own:
        yield _render_fields(own)


def _list_keys(names: Iterable[str], fields: Mapping[str, FieldInfo], others: Mapping[str, FieldInfo]) -> Iterator[str]:
    """Yield each name, with its default if that is another than elsewhere."""
    for name in sorted(names):
        default = _get_default(fields[name])
        yield f"`{name}`" if default == _get_default(others[name]) else f"`{name}`: {default}"


def _get_default(field: FieldInfo) -> str:
    return "required" if field.is_required() else _format_default(field.get_default(call_default_factory=True))


def _render_parts_of_specialists() -> Iterator[str]:
    """Yield the mappings that keys of several kinds take, each once."""
    seen = set()
    for kind in list_kinds():
        for key, field in get_specialist_class(kind).model_fields.items():
            model = get_section_model(field.annotation)
            if model is not None and model not in seen:
                seen.add(model)
                yield f"### `env.specialists.NAME.{key}`"
                yield _get_first_paragraph(model)
                yield _render_fields(model.model_fields)


def _render_rollout() -> Iterator[str]:
    yield from _render_model("rollout", RolloutSection)
    for name in sorted(ENGINES):
        settings = get_engine(name).Settings
        own = {key: field for key, field in settings.model_fields.items() if key not in RolloutSection.model_fields}
        yield f"### `rollout.engine: {name}`"
        yield _get_first_paragraph(settings)
        yield _render_fields(own)


def _render_rewards() -> Iterator[str]:
    yield REWARD
    fields = _get_fields(Component)
    yield _render_fields({name: fields[name] for name in COMPONENT_KEYS})
    yield SEVERAL
    types = {name: dict(_get_fields(get_reward_class(name))) for name in list_reward_types()}
    for own in types.values():
        own.pop("name", None)
    several = _find_repeated(types.values())
    yield _render_fields(several)
    for name, own in types.items():
        yield f"### `reward.type: {name}`"
        yield from _render_own_fields(own, {}, several)


def _render_train() -> Iterator[str]:
    yield from _render_model("train", get_section_model(Config.model_fields["train"].annotation))
    yield TRAIN
    on_gpu, on_cpu = get_defaults(gpu=True), get_defaults(gpu=False)
    every = {name: value for name, value in on_gpu.items() if on_cpu[name] == value}
    rows = [("everywhere", every), ("on a GPU", on_gpu), ("without one", on_cpu)]
    yield "\n".join(f"- {where}: {_list_values(values, {} if values is every else every)}" for where, values in rows)
    yield LEARNING_RATE
    rates = [
        (f"`{method}`", "LoRA adapters" if lora else "every weight", f"`{rate:.10g}`")
        for (method, lora), rate in LEARNING_RATES.items()
    ]
    yield _render_table(("method", "trained", "`learning_rate`"), rates)
    yield "viewbox sets these itself and refuses them in `train`:"
    yield _render_table(("argument", "decided by"), _join_names(OWNED))
    yield "These are refused, because nothing in a run would read them, or they would break it later:"
    yield _render_table(("argument", "why"), _list_refusals())
    yield "These accept one value of a list (TRL and transformers check the others):"
    choices = [
        (f"`{name}`", ", ".join(f"`{_format_yaml(value)}`" for value in values)) for name, values in CHOICES.items()
    ]
    yield _render_table(("argument", "allowed"), choices)


def _list_values(values: Mapping[str, Any], without: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}: {_format_yaml(value)}`" for name, value in values.items() if name not in without)


def _list_refusals() -> list[tuple[str, str]]:
    """(arguments, reason) of those that are refused."""
    sft_only = {name: f"only with `method: sft`; {reason}" for name, reason in USED_BY_SFT.items()}
    return _join_names({**REFUSED, **sft_only})


def _join_names(reasons: Mapping[str, str]) -> list[tuple[str, str]]:
    """(names, reason); names with the same reason share a row."""
    rows: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        rows.setdefault(reason, []).append(f"`{name}`")
    return [(", ".join(names), reason) for reason, names in rows.items()]


_RENDERERS = {
    "env": _render_env,
    "reward": _render_rewards,
    "rollout": _render_rollout,
    "train": _render_train,
}


def _get_fields(cls: type) -> Mapping[str, FieldInfo]:
    assert is_pydantic_dataclass(cls)
    return cls.__pydantic_fields__


def _render_fields(fields: Mapping[str, FieldInfo]) -> str:
    """Return a line for each key, in the form of `docs/tools.md`."""
    lines = []
    for name, field in fields.items():
        only = {type(None), get_section_model(field.annotation)}.issuperset(
            get_args(field.annotation) or [field.annotation]
        )
        kind = "a mapping, see below" if only else describe_type(field.annotation, field.metadata)
        kind = "a mapping by its `type`" if field.annotation is Reward else kind
        default = _get_default(field)
        if default == "`null`":  # which says that it may be null
            kind = kind.removesuffix(" or null")
        default = default if field.is_required() else f"default {default}"
        lines.append(f"- `{name}` ({_shorten(kind)}; {default}): {field.description}")
    return "\n".join(lines)


SHORT = (  # (words of an error message, their sign in a list)
    (r" of at least (\S+) and of at most (\S+)", r" \1–\2"),
    (r" of at least (\S+) and below (\S+)", r" ≥\1 and <\2"),
    (r" above (\S+) and of at most (\S+)", r" >\1 and ≤\2"),
    (r" of at least (\S+)", r" ≥\1"),
    (r" above (\S+)", r" >\1"),
    (r"\ba mapping, see below", "mapping"),
    (r"\ba mapping whose values are (a )?", "mapping to "),
    (r"\b(a )?whole number", "integer"),
    (r"\btext that is not empty", "non-empty text"),
    (r"\btrue or false", "boolean"),
    (r"\bbytes \(integer, or text such as 2GiB or 500MB\)", "bytes"),
    (r"\ba (?=list|mapping|number)", ""),
)


def _shorten(words: str) -> str:
    """Return what a key takes as the page says it.

    >>> _shorten("a whole number of at least 1 and of at most 20 or null")
    'integer 1–20 or null'
    """
    for pattern, sign in SHORT:
        words = re.sub(pattern, sign, words)
    return words


def _format_default(value: Any) -> str:
    """Return a default as YAML; long texts are replaced by their names."""
    if isinstance(value, Reward):
        return f"`{{type: {value.name}}}`"
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_defaults=True)
    if isinstance(value, str) and len(value) > 60:
        return "its own"
    if isinstance(value, Mapping) and any(isinstance(text, str) and len(text) > 40 for text in value.values()):
        return f"its own {', '.join(value)}"
    return f"`{_format_yaml(value)}`"


def _render_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [list(head), *(list(row) for row in rows)]
    cells.insert(1, ["---"] * len(cells[0]))
    return "\n".join("|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in cells)


def _format_yaml(value: Any) -> str:
    return yaml.safe_dump(to_tool_names(thaw(value)), default_flow_style=True).removesuffix("...\n").strip()


def _get_first_paragraph(thing: Any) -> str:
    words = (getattr(thing, "__doc__", None) or "").strip().split("\n\n")[0]
    return " ".join(words.split())


if __name__ == "__main__":
    print(build_page(), end="")
