"""A reward as YAML: a union of typed specs, told apart by `type`, and the reward each of them makes.

    type: combined
    components:
      label: {type: exact_match, field: label, weight: 0.5}
      box: {type: iou, field: bbox, weight: 0.5}

`{type: python, function: "package.module:name"}` imports one of your own (`rewards/imported.py`). `RewardSpec` can be
the type of a field in any pydantic model.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from viewbox.errors import ConfigError, unknown
from viewbox.rewards.base import Reward
from viewbox.rewards.boxes import IoUReward
from viewbox.rewards.combined import CombinedReward
from viewbox.rewards.exact import ExactMatchReward
from viewbox.rewards.imported import imported
from viewbox.rewards.tokens import TokenF1Reward

_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Name = Annotated[str, Field(min_length=1)]


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    weight: _NotNegative | None = None  # its share of the combined reward it stands in; nowhere else
    name: _Name | None = None


class _FieldSpec(_Spec):
    makes: ClassVar[type[Any]]
    field: _Name
    reference_field: _Name | None = None


class ExactMatchSpec(_FieldSpec):
    makes = ExactMatchReward
    type: Literal["exact_match"]
    field: _Name = "label"
    aliases: dict[str, list[str]] = {}
    tolerance: _NotNegative | None = None


class TokenF1Spec(_FieldSpec):
    makes = TokenF1Reward
    type: Literal["token_f1"]
    stop_words: bool | list[str] = False

    @field_validator("stop_words", mode="before")
    @classmethod
    def _one_of_both(cls, value: Any) -> Any:
        if not isinstance(value, bool | list | tuple):
            raise ValueError("allowed: true, false or a list of words")
        return value


class IoUSpec(_FieldSpec):
    makes = IoUReward
    type: Literal["iou"]
    field: _Name = "bbox"
    format: Literal["xyxy", "xywh"] = "xyxy"
    threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    area_penalty: _NotNegative = 0.0


class PythonSpec(_Spec):
    makes = staticmethod(imported)
    type: Literal["python"]
    function: _Name


class CombinedSpec(_Spec):
    type: Literal["combined"]
    components: dict[_Name, "RewardSpec"]


RewardSpec = Annotated[ExactMatchSpec | TokenF1Spec | IoUSpec | PythonSpec | CombinedSpec, Field(discriminator="type")]
CombinedSpec.model_rebuild()
_SPECS: dict[str, type[_Spec]] = {
    "exact_match": ExactMatchSpec,
    "token_f1": TokenF1Spec,
    "iou": IoUSpec,
    "python": PythonSpec,
    "combined": CombinedSpec,
}
_ADAPTER: TypeAdapter[Any] = TypeAdapter(RewardSpec)


def build(spec: Any) -> Reward:
    """The reward of a `RewardSpec` or of the mapping that YAML gave.

    Raises `ConfigError` naming the key, what was given and what is allowed.

    >>> build({"type": "iou", "threshold": 0.5})
    IoUReward(field='bbox', reference_field=None, format='xyxy', threshold=0.5, area_penalty=0.0, name='iou')
    >>> build({"type": "box"})
    Traceback (most recent call last):
    viewbox.errors.ConfigError: reward: unknown reward 'box'; allowed: combined, exact_match, iou, python, token_f1
    """
    if not isinstance(spec, _Spec):
        try:
            spec = _ADAPTER.validate_python(spec)
        except ValidationError as error:
            raise ConfigError(_explain(error)) from error
    if spec.weight is not None:
        raise ConfigError(f"reward.weight: given {spec.weight:g}; allowed only on the components of a combined reward")
    return _make(spec, "reward")


def _make(spec: Any, path: str) -> Reward:
    if not isinstance(spec, CombinedSpec):
        return spec.makes(**spec.model_dump(exclude={"type", "weight"}, exclude_unset=True, exclude_none=True))
    made: dict[str, tuple[Reward, float]] = {}
    for name, part in spec.components.items():
        if part.weight is None:
            raise ConfigError(f"{path}.components.{name}.weight: missing; allowed: a number >= 0")
        made[name] = (_make(part, f"{path}.components.{name}"), part.weight)
    try:
        return CombinedReward(made, **({"name": spec.name} if spec.name else {}))
    except ConfigError as error:
        raise ConfigError(f"{path}.components: {error}") from error


def _explain(error: ValidationError) -> str:
    """The first thing that is wrong, at the path the reader of the YAML knows (pydantic's holds the types as well)."""
    first = error.errors()[0]
    path, kind, expected = ["reward"], "", "type"
    for part in first["loc"]:
        if expected == "type":
            kind, expected = str(part), "key"
            continue
        path.append(str(part))
        if expected == "key" and kind == "combined" and part == "components":
            expected = "component"
        else:
            expected = "type" if expected == "component" else "rest"
    where = ".".join(path)
    match first["type"]:
        case "union_tag_invalid":
            return f"{where}: {unknown('reward', str(first['ctx']['tag']), _SPECS)}"
        case "union_tag_not_found":
            return f"{where}.type: missing; allowed: {', '.join(sorted(_SPECS))}"
        case "extra_forbidden":
            return f"{where}: given {first['input']!r:.80}; {unknown('key', path[-1], _SPECS[kind].model_fields)}"
        case "missing":
            return f"{where}: missing"
    return f"{where}: given {first['input']!r:.80}; {first['msg'].removeprefix('Value error, ')}"
