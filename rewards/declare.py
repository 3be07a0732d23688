"""What a reward is, a function of an answer or of a whole episode; how it is declared: as a frozen dataclass; and how
one is made from YAML, or from an import path.

The annotations and defaults of the class are also the keys, limits, descriptions and defaults of its YAML: a mapping
with a `type`, and the settings of that reward's class. pydantic checks it and a call in Python alike. A mistake is a
`ConfigError` that names the setting and what is allowed.

    type: combined
    components:
      label: {type: exact_match, field: label, weight: 0.5}
      box: {type: iou, field: bbox, weight: 0.5}
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeVar, cast, dataclass_transform, runtime_checkable

import pydantic
from pydantic import BeforeValidator, ConfigDict, Field, SkipValidation, ValidationError
from pydantic_core import ArgsKwargs

from .. import registry
from ..configs.validation import describe_errors
from ..errors import ConfigError, describe_unknown
from ..records import Episode
from ..utils.importing import load_object
from .fields import Answer, Reference

C = TypeVar("C", bound=type)
V = TypeVar("V")

Name = Annotated[str, Field(min_length=1)]
AnswerField = Annotated[str, Field(min_length=1, description="the answer's field; a path such as findings.0.name")]
ReferenceField = Annotated[Name | None, Field(description="the reference's field; default: the same as `field`")]
RewardName = Annotated[str, Field(min_length=1, description="the name in logs if it is not a component")]
Aliases = Annotated[Mapping[str, Sequence[str]], Field(description="other accepted spellings of each label")]
NonNegative = Annotated[float, Field(ge=0)]
UnitInterval = Annotated[float, Field(ge=0, le=1)]
Threshold = Annotated[float, Field(gt=0, le=1)]
Names = Annotated[
    Sequence[str], BeforeValidator(lambda value: sorted(value) if isinstance(value, set | frozenset) else value)
]
ItemKey = Annotated[Name | None, Field(description="the key of the name in each object; default: a list of bare names")]

COMPONENT_KEYS = ("weight", "needs")
REWARD_TYPES: dict[str, type] = {}  # by the `type` in YAML


@runtime_checkable
class Reward(Protocol):
    """A pure function of the final answer and the task's reference. The score is finite and in [0, 1]; `None` means
    that the reward does not apply to this task. Whatever the answer, a reward does not raise; it may if it cannot be
    computed now, such as a judge that is down, and raises `Unmeasurable` if no answer can meet the reference.

    >>> from viewbox.rewards import ExactMatchReward
    >>> isinstance(ExactMatchReward(), Reward)
    True
    """

    @property
    def name(self) -> str: ...

    def __call__(self, answer: Answer, reference: Reference) -> float | None: ...


@runtime_checkable
class EpisodeReward(Protocol):
    """A pure function of a whole episode, for what an answer alone cannot show (format, use of tools).
    The score is finite and in [0, 1]; `None` means that the reward does not apply to this episode.

    >>> class Short:
    ...     name = "short"
    ...     def of_episode(self, episode):
    ...         return 1.0 if episode.num_turns <= 3 else 0.0
    >>> isinstance(Short(), EpisodeReward)
    True
    """

    @property
    def name(self) -> str: ...

    def of_episode(self, episode: Episode) -> float | None: ...


AnyReward = Reward | EpisodeReward


def get_reward_name(reward: object) -> str:
    """Return the name of a reward in logs: its `name`, else that of the function or class."""
    return str(getattr(reward, "name", None) or getattr(reward, "__name__", type(reward).__name__))


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def validated_dataclass(cls: C) -> C:
    """Return a frozen dataclass whose constructor checks the annotations and raises `ConfigError`.
    Numbers are not converted: `True` is not 1 and "0.5" is not 0.5.

    >>> @validated_dataclass
    ... class Circle:
    ...     radius: NonNegative = 1.0
    >>> Circle(radius=-1)
    Traceback (most recent call last):
    viewbox.errors.ConfigError: Circle.radius = -1; allowed: a number of at least 0
    """
    owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
    if not (owner is object or dataclasses.is_dataclass(owner) or getattr(owner, "_is_protocol", False)):
        problem = f"{cls.__name__}: has its own __init__, which its settings would replace"
        raise ConfigError(f'{problem}; allowed: annotated fields (`field: str = "label"`), and __post_init__')
    config = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
    validated: Any = pydantic.dataclasses.dataclass(frozen=True, config=config)(cls)
    signature = inspect.signature(validated)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        _set_fields(self, validated, signature.bind(*args, **kwargs).arguments, validated.__name__, strict=True)

    validated.__init__ = __init__
    return cast(C, validated)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def register_reward(type: str) -> Callable[[C], C]:
    """Return a decorator: makes a class a `validated_dataclass` and the reward of `type: …` in YAML.

    >>> from viewbox.rewards import build
    >>> @register_reward("constant")
    ... class ConstantReward:
    ...     value: UnitInterval = 1.0
    ...     name: RewardName = "constant"
    ...     def __call__(self, answer, reference):
    ...         return self.value
    >>> build({"type": "constant", "value": 0.5})
    ConstantReward(value=0.5, name='constant')
    >>> del REWARD_TYPES["constant"]
    """

    def register(cls: C) -> C:
        reward_class = validated_dataclass(cls)
        REWARD_TYPES[type] = reward_class
        return reward_class

    return register


def list_reward_types() -> list[str]:
    """Return every `type` that `build` accepts, including rewards that are not imported yet."""
    return sorted({*REWARD_TYPES, *registry.list_plugins("rewards")})


def get_reward_class(type: str) -> Any:
    """Return the class of a `type` in YAML.
    Rewards that do I/O live in rooms above this one, or in other packages. `registry.py` names the module of each,
    imported when its type is first asked for; it registers its class. Raise `ConfigError` for an unknown type."""
    if type not in REWARD_TYPES:
        registry.import_plugin("rewards", type)
    if type not in REWARD_TYPES:
        raise ConfigError(describe_unknown("reward", type, list_reward_types()))
    return REWARD_TYPES[type]


def create_validated(cls: type[V], settings: Mapping[str, object], path: str, *, strict: bool = False) -> V:
    """Return an instance of a `validated_dataclass`; `path` is where the settings stand, for the `ConfigError`.
    Unless `strict`, numbers may be text, as some YAML readers give them ("1e-3")."""
    instance = object.__new__(cls)
    _set_fields(instance, cls, settings, path, strict)
    return instance


def _set_fields(instance: Any, cls: Any, settings: Mapping[str, Any], path: str, strict: bool) -> None:
    values = ArgsKwargs((), dict(settings))
    try:
        cls.__pydantic_validator__.validate_python(values, strict=strict, self_instance=instance)
    except ValidationError as error:
        cause = error.errors()[0].get("ctx", {}).get("error")
        if isinstance(cause, ConfigError):  # raised in `__post_init__`; a message with a key begins with it
            joint, key = (".", f"{path}.{cause.key}") if cause.key else (": ", path)
            raise ConfigError(f"{path}{joint}{cause}", key=key) from error
        problems = describe_errors(error, cls, settings, path)
        raise ConfigError("\n".join(map(str, problems)), key=problems[0].key) from error


ALLOWED = (
    "a function of (answer, reference), a function of one argument named `episode`, a reward object, "
    "or a class made without arguments"
)


@register_reward("python")
class ImportedReward:
    """A reward of your own, by its import path."""

    function: Annotated[
        str,
        Field(
            min_length=1,
            description="`package.module:name` or `path/to/file.py:name`: a function of (answer, reference) or of one "
            "episode, or a reward",
        ),
    ]
    name: Annotated[Name | None, Field(description="the name in logs if it is not a component; default: its own")] = (
        None
    )


@dataclasses.dataclass(frozen=True)
class AnswerFunction:
    """A plain function of (answer, reference) as a `Reward`."""

    function: Callable[..., float | None]
    name: str

    def __call__(self, answer: Answer, reference: Reference) -> float | None:
        return self.function(answer, reference)


@dataclasses.dataclass(frozen=True)
class EpisodeFunction:
    """A function of a whole episode as an `EpisodeReward`."""

    function: Callable[..., float | None]
    name: str

    def of_episode(self, episode: Episode) -> float | None:
        return self.function(episode)


def load_reward(path: str, name: str | None = None) -> AnyReward:
    """Load the reward at an import path.

    >>> load_reward("viewbox.rewards:ExactMatchReward").name
    'exact_match'
    >>> load_reward("operator:eq", name="same")(1, 1)
    True
    >>> load_reward("math:sqrt")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: reward 'math:sqrt': takes (x, /), not (answer, reference); allowed: a function of \
(answer, reference), a function of one argument named `episode`, a reward object, or a class made without arguments
    """
    return _to_reward(load_object(path, kind="reward"), path, name, re.split("[:.]", path)[-1])


def _to_reward(loaded: Any, path: str, name: str | None, default: str) -> AnyReward:
    if inspect.isclass(loaded):
        try:
            loaded = loaded()
        except Exception as error:
            problem = f"the class cannot be made without arguments: {type(error).__name__}: {error}"
            raise ConfigError(f"reward {path!r}: {problem}") from error
    method = getattr(loaded, "of_episode", None)
    if method is None and not callable(loaded):
        raise ConfigError(f"reward {path!r}: is a {type(loaded).__name__}; allowed: {ALLOWED}")
    loaded_name = getattr(loaded, "name", None)
    name = name or (loaded_name if isinstance(loaded_name, str) and loaded_name else default)
    if method is not None:
        _check_signature(method, path, ("episode",))
        built: AnyReward = loaded if loaded_name == name else EpisodeFunction(method, name)
        return built
    arguments = ("episode",) if _get_first_argument(loaded, path) == "episode" else ("answer", "reference")
    _check_signature(loaded, path, arguments)
    if arguments == ("episode",):
        return EpisodeFunction(loaded, name)
    reward: AnyReward = loaded if loaded_name == name else AnswerFunction(loaded, name)
    return reward


def adapt_reward(reward: object) -> object:
    """Return a reward given in Python as one that can be called: a class is made, a function of `episode` reads
    episodes.

    >>> adapt_reward(lambda episode: 1.0).of_episode(None)
    1.0
    """
    if inspect.isclass(reward) or (callable(reward) and not hasattr(reward, "of_episode")):
        name = reward.__name__ if inspect.isclass(reward) else get_reward_name(reward)
        if inspect.isclass(reward) or _get_first_argument(reward, name) == "episode":
            return _to_reward(reward, name, None, name)
        _check_signature(reward, name, ("answer", "reference"))
    return reward


def _get_signature(function: Callable[..., Any], path: str) -> inspect.Signature:
    takes = getattr(getattr(function, "__code__", None), "co_argcount", 0)  # a wrapper that names none passes all on
    try:
        return inspect.signature(function, follow_wrapped=not takes)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"reward {path!r}: its arguments cannot be read ({error}); allowed: {ALLOWED}") from error


def _get_first_argument(function: Callable[..., Any], path: str) -> str:
    return next(iter(_get_signature(function, path).parameters), "")


def _check_signature(function: Callable[..., Any], path: str, arguments: tuple[str, ...]) -> None:
    signature = _get_signature(function, path)
    try:
        signature.bind(*arguments)
    except TypeError as error:
        bare = signature.replace(return_annotation=inspect.Signature.empty)
        raise ConfigError(f"reward {path!r}: takes {bare}, not ({', '.join(arguments)}); allowed: {ALLOWED}") from error
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigError(f"reward {path!r}: is asynchronous or a generator; allowed: {ALLOWED}")


@validated_dataclass
class Component:
    """A part of a combined reward: a reward, its weight, and the scores it needs from other components.
    If a score is below what is needed, this component counts 0.0. If the other component does not apply (`None`),
    neither does this one; if the other fails, so does this one.

    >>> from viewbox.rewards import ToolUseReward
    >>> Component(ToolUseReward(at_least=1), 0.1, needs={"label": 1.0}).needs
    {'label': 1.0}
    """

    reward: SkipValidation[AnyReward]
    weight: Annotated[NonNegative, Field(description="its share of the combined reward; all weights sum to 1")]
    needs: Annotated[
        Mapping[Name, Threshold],
        Field(description="least scores of other components, such as `{label: 1.0}`; if one is lower, this counts 0"),
    ] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reward", adapt_reward(self.reward))


Check = Callable[[str, Mapping[str, Any], str], None]  # of (type, settings, path), before a reward is made


def build(spec: object, path: str = "reward", *, check: Check | None = None) -> AnyReward:
    """Build the reward that a mapping from YAML describes; a reward object is returned as it is. Raise `ConfigError`
    for a key that is unknown, missing or out of range; it names the key, the value and what is allowed.

    >>> build({"type": "exact_match", "field": "answer"})
    ExactMatchReward(field='answer', reference_field=None, aliases={}, tolerance=None, name='exact_match')
    >>> build({"type": "box"})
    Traceback (most recent call last):
    viewbox.errors.ConfigError: reward: unknown reward 'box'; allowed: brier, combined, evidence, exact_match, format, \
iou, judge, label_set_f1, python, ranking, seen, token_f1, tool_use
    """
    if isinstance(spec, Mapping):
        for key in COMPONENT_KEYS:
            if spec.get(key) is not None:
                text = f"{path}.{key} = {spec[key]!r:.80}: allowed only in a component of a combined reward"
                raise ConfigError(text, key=f"{path}.{key}")
    elif isinstance(spec, Reward | EpisodeReward):
        return spec
    return _build_reward(spec, path, check)


RewardSpec = Annotated[Any, BeforeValidator(build)]  # a field of a pydantic model: YAML becomes the reward


def _build_reward(spec: Any, path: str, check: Check | None) -> AnyReward:
    if not isinstance(spec, Mapping):
        raise ConfigError(f"{path} = {spec!r:.80}; allowed: a mapping with `type`", key=path)
    if "type" not in spec:
        types = list_reward_types()
        raise ConfigError(f"{path}.type: is missing; allowed: {', '.join(types)}", key=f"{path}.type")
    if check is not None:
        check(str(spec["type"]), spec, path)
    try:
        cls = get_reward_class(str(spec["type"]))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", key=path) from error
    settings = {
        key: value
        for key, value in spec.items()
        if key not in ("type", *COMPONENT_KEYS) and (value is not None or key not in ("name", "of"))
    }
    _check_keys(settings, cls, path)
    if spec["type"] == "combined" and isinstance(settings.get("components"), Mapping):
        parts = settings["components"].items()
        inside = f"{path}.components"
        settings["components"] = {name: _build_component(entry, f"{inside}.{name}", check) for name, entry in parts}
    if spec["type"] == "brier" and "of" in settings:
        settings["of"] = build(settings["of"], f"{path}.of", check=check)
    reward: Any = create_validated(cls, settings, path)
    return load_reward(reward.function, reward.name) if isinstance(reward, ImportedReward) else reward


def _build_component(spec: Any, path: str, check: Check | None) -> Component:
    reward = _build_reward(spec, path, check)
    keys = {key: spec[key] for key in COMPONENT_KEYS if spec.get(key) is not None}
    return create_validated(Component, {"reward": reward, **keys}, path)


def _check_keys(settings: Mapping[str, Any], cls: Any, path: str) -> None:
    fields = [field.name for field in dataclasses.fields(cls)]
    for key, value in settings.items():
        if key not in fields:
            text = describe_unknown("key", str(key), ["type", *fields, *COMPONENT_KEYS])
            raise ConfigError(f"{path}.{key} = {value!r:.80}: {text}", key=f"{path}.{key}")
