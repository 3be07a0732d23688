"""`docs/configuration.md`, printed from the code it describes: `viewbox config > docs/configuration.md`.

Types, limits and defaults are those that are checked, so the page cannot say anything else; a test compares the two.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from viewbox.configs.schema import Config
from viewbox.configs.validation import describe_type, get_section_model
from viewbox.envs import ENVIRONMENTS, make
from viewbox.envs.settings import model_of
from viewbox.rewards import Component, Reward
from viewbox.rewards.declare import get_reward_class, list_reward_types
from viewbox.rewards.spec import COMPONENT_KEYS
from viewbox.training.trainer_args import CHOICES, OWNED, get_defaults

HEAD = """# Configuration

Printed by `viewbox config` from the code that checks it; do not edit.

A run is one YAML file of sections. `viewbox train FILE key.path=value …` overrides single keys, and
`viewbox train FILE --dry-run` checks everything and prints what it resolves to. An unknown key, a wrong type or a
contradiction ends with status 2 and one message: file, line, key, value, what is allowed, the nearest name."""

ENV = """The settings below stand in `env` beside `name`, and in `env.eval` where held-out tasks differ. An environment
of your own has those of its annotated class attributes."""

REWARD = """A reward is chosen by its `type`; the other keys are those of its class. A component of a `combined` reward
has two more:"""

TRAIN = """Every other key is an argument of TRL's `GRPOConfig` (`method: grpo`) or of transformers'
`TrainingArguments` (`method: sft`), checked by name and type. Where the YAML says nothing, viewbox gives these:"""


def build_page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, field in Config.model_fields.items():
        parts += [f"## `{name}`", *_extra[name]()] if name in _extra else list(_section(name, field))
    return "\n\n".join(parts) + "\n"


def _section(name: str, field: FieldInfo) -> Iterator[str]:
    model = get_section_model(field.annotation)
    yield f"## `{name}`"
    yield from _model(name, model)


def _model(path: str, model: type[BaseModel]) -> Iterator[str]:
    """A section's words, its keys, and the sections inside it."""
    if model.__doc__:
        yield model.__doc__.strip()
    yield _table(model.model_fields)
    for name, field in model.model_fields.items():
        inner = get_section_model(field.annotation)
        if inner is not None:
            yield f"### `{path}.{name}`"
            yield from _model(f"{path}.{name}", inner)


def _env() -> Iterator[str]:
    yield from _model("env", get_section_model(Config.model_fields["env"].annotation))
    yield ENV
    for name in sorted(ENVIRONMENTS):
        cls: type = type(make(name))
        yield f"### `env.name: {name}`"
        yield _first_paragraph(cls)
        yield _table(model_of(cls).model_fields)


def _reward() -> Iterator[str]:
    yield REWARD
    fields = Component.__pydantic_fields__
    yield _table({name: fields[name] for name in COMPONENT_KEYS})
    for type_name in list_reward_types():
        cls = get_reward_class(type_name)
        yield f"### `reward.type: {type_name}`"
        yield _first_paragraph(cls)
        yield _table(cls.__pydantic_fields__)


def _train() -> Iterator[str]:
    yield from _model("train", get_section_model(Config.model_fields["train"].annotation))
    yield TRAIN
    on_cpu = get_defaults(gpu=False)
    rows = [
        (f"`{name}`", f"`{_yaml(gpu)}`", f"`{_yaml(on_cpu[name])}`") for name, gpu in get_defaults(gpu=True).items()
    ]
    yield _rows(("argument", "on a GPU", "without"), rows)
    yield "These are set by viewbox and refused in `train`:"
    yield _rows(("argument", "what decides it"), [(f"`{name}`", f"{decides}") for name, decides in OWNED.items()])
    yield "These take one of a list (others are checked by TRL and transformers):"
    choices = [(f"`{name}`", ", ".join(f"`{_yaml(one)}`" for one in values)) for name, values in CHOICES.items()]
    yield _rows(("argument", "allowed"), choices)


_extra = {"env": _env, "reward": _reward, "train": _train}


def _table(fields: Mapping[str, FieldInfo]) -> str:
    rows = []
    for name, field in fields.items():
        default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
        only = {type(None), get_section_model(field.annotation)}.issuperset(
            get_args(field.annotation) or [field.annotation]
        )
        kind = "a mapping, see below" if only else describe_type(field.annotation, field.metadata)
        kind = "a mapping by its `type`" if field.annotation is Reward else kind
        rows.append((f"`{name}`", kind, default, field.description or ""))
    return _rows(("key", "takes", "default", "meaning"), rows)


def _default(value: Any) -> str:
    """A default as YAML; of long texts only their names."""
    if isinstance(value, Reward):
        return f"`{{type: {value.name}}}`"
    if isinstance(value, str) and len(value) > 60:
        return "its own"
    if isinstance(value, Mapping) and any(isinstance(one, str) and len(one) > 40 for one in value.values()):
        return f"its own {', '.join(value)}"
    return f"`{_yaml(value)}`"


def _rows(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [list(head), *(list(row) for row in rows)]
    cells.insert(1, ["---"] * len(cells[0]))
    return "\n".join("|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in cells)


def _yaml(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True).removesuffix("...\n").strip()


def _first_paragraph(thing: Any) -> str:
    words = (getattr(thing, "__doc__", None) or "").strip().split("\n\n")[0]
    return " ".join(words.split())
