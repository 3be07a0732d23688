"""A reward as YAML: a union of typed specs, told apart by `type`, and the reward each of them makes.

    type: combined
    components:
      label: {type: exact_match, field: label, weight: 0.5}
      box: {type: iou, field: bbox, weight: 0.5}

`{type: python, function: "package.module:name"}` imports one of your own (`rewards/imported.py`). `RewardSpec` can be
the type of a field in any pydantic model.
"""

from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError

from viewbox.errors import ConfigError, describe_unknown
from viewbox.rewards.base import Reward
from viewbox.rewards.brier import BrierReward
from viewbox.rewards.combined import CombinedReward, Part
from viewbox.rewards.imported import imported
from viewbox.rewards.spec_models import (
    ExactMatchSpec,
    FormatSpec,
    IoUSpec,
    LabelSetF1Spec,
    Name,
    RankingSpec,
    Spec,
    TokenF1Spec,
    ToolUseSpec,
)


class BrierSpec(Spec):
    makes: ClassVar[type[Any]] = BrierReward
    type: Literal["brier"]
    of: "RewardSpec | None" = None
    confidence_field: Name = "confidence"
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class PythonSpec(Spec):
    makes = staticmethod(imported)
    type: Literal["python"]
    function: Name


def _judge(**settings: Any) -> Any:
    """A judge does I/O, which nothing in `rewards` may: it is found by name when a YAML asks for one."""
    return import_module("viewbox.rollouts.judge.reward").judge(**settings)


class JudgeSpec(Spec):
    """The score that a language model behind an OpenAI-compatible endpoint gives; `None` where it cannot be reached."""

    makes = staticmethod(_judge)
    type: Literal["judge"]
    endpoint: Name = Field(description="the base URL, such as http://127.0.0.1:8000/v1")
    model: Name = Field(description="the name by which the endpoint knows the judge")
    rubric: Name | None = Field(default=None, description="what earns which score; default: agreement with the gold")
    field: Name | None = Field(default=None, description="the answer's field to judge; default: all of it")
    reference_field: Name | None = None
    show_reference: bool = Field(default=True, description="whether the judge sees the gold")
    show_question: bool = Field(
        default=False, description="whether it sees the question (then it does not apply where there is no episode)"
    )
    max_characters: Annotated[int, Field(ge=1)] = Field(default=8000, description="of each text the judge is shown")
    api_key_env: Name | None = Field(
        default=None, description="the environment variable with the key; the key itself stands nowhere"
    )
    cache: Name | None = Field(default=None, description="a folder for its replies; default: kept in memory")
    concurrency: Annotated[int, Field(ge=1)] = Field(default=8, description="requests in flight at once")
    attempts: Annotated[int, Field(ge=1)] = Field(default=6, description="of each request, with growing pauses")
    time_limit: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=60.0, description="seconds for all attempts of one judgment"
    )
    max_tokens: Annotated[int, Field(ge=1)] = Field(default=512, description="of the judge's reply")
    extra: dict[str, Any] = Field(
        default={}, description="merged into every request; a value of null takes a field out (temperature)"
    )


class CombinedSpec(Spec):
    makes: ClassVar[type[Any]] = CombinedReward
    type: Literal["combined"]
    components: dict[Name, "RewardSpec"]


RewardSpec = Annotated[
    ExactMatchSpec
    | TokenF1Spec
    | IoUSpec
    | LabelSetF1Spec
    | RankingSpec
    | BrierSpec
    | FormatSpec
    | ToolUseSpec
    | JudgeSpec
    | PythonSpec
    | CombinedSpec,
    Field(discriminator="type"),
]
BrierSpec.model_rebuild()
CombinedSpec.model_rebuild()
_SPECS: dict[str, type[Spec]] = {
    "exact_match": ExactMatchSpec,
    "token_f1": TokenF1Spec,
    "iou": IoUSpec,
    "label_set_f1": LabelSetF1Spec,
    "ranking": RankingSpec,
    "brier": BrierSpec,
    "format": FormatSpec,
    "tool_use": ToolUseSpec,
    "judge": JudgeSpec,
    "python": PythonSpec,
    "combined": CombinedSpec,
}
_ADAPTER: TypeAdapter[Any] = TypeAdapter(RewardSpec)


def build(spec: Any) -> Reward:
    """The reward of a `RewardSpec` or of the mapping that YAML gave.

    Raises `ConfigError` naming the key, what was given and what is allowed.

    >>> build({"type": "exact_match", "field": "answer"})
    ExactMatchReward(field='answer', reference_field=None, aliases={}, tolerance=None, name='exact_match')
    >>> build({"type": "box"})
    Traceback (most recent call last):
    viewbox.errors.ConfigError: reward: unknown reward 'box'; allowed: brier, combined, exact_match, format, iou, \
judge, label_set_f1, python, ranking, token_f1, tool_use
    """
    if not isinstance(spec, Spec):
        try:
            spec = _ADAPTER.validate_python(spec)
        except ValidationError as error:
            raise ConfigError(_explain(error)) from error
    return _alone(spec, "reward")


def _make(spec: Any, path: str) -> Any:
    """The reward of a spec; `path` is where it stands, for messages."""
    if isinstance(spec, CombinedSpec):
        return _combined(spec, path)
    given = spec.model_dump(exclude={"type", "weight", "needs", "of"}, exclude_unset=True, exclude_none=True)
    if isinstance(spec, BrierSpec) and spec.of is not None:
        given["of"] = _alone(spec.of, f"{path}.of")
    try:
        return spec.makes(**given)
    except ConfigError as error:
        raise error if isinstance(spec, PythonSpec | JudgeSpec) else ConfigError(f"{path}: {error}") from error


def _combined(spec: CombinedSpec, path: str) -> CombinedReward:
    made: dict[str, Part] = {}
    for name, part in spec.components.items():
        if part.weight is None:
            raise ConfigError(f"{path}.components.{name}.weight: missing; allowed: a number >= 0")
        made[name] = Part(_make(part, f"{path}.components.{name}"), part.weight, dict(part.needs))
    try:
        return CombinedReward(made, **({"name": spec.name} if spec.name else {}))
    except ConfigError as error:
        raise ConfigError(f"{path}.components: {error}") from error


def _alone(spec: Any, path: str) -> Any:
    """The reward of a spec that is no component: a weight or a need there would say nothing."""
    if spec.weight is not None:
        raise ConfigError(f"{path}.weight: given {spec.weight:g}; allowed only on the components of a combined reward")
    if spec.needs:
        raise ConfigError(f"{path}.needs: given {spec.needs}; allowed only on the components of a combined reward")
    return _make(spec, path)


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
            return f"{where}: {describe_unknown('reward', str(first['ctx']['tag']), _SPECS)}"
        case "union_tag_not_found":
            return f"{where}.type: missing; allowed: {', '.join(sorted(_SPECS))}"
        case "extra_forbidden":
            return (
                f"{where}: given {first['input']!r:.80}; {describe_unknown('key', path[-1], _SPECS[kind].model_fields)}"
            )
        case "missing":
            return f"{where}: missing"
    return f"{where}: given {first['input']!r:.80}; {first['msg'].removeprefix('Value error, ')}"
