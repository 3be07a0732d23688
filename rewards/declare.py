"""What a reward is, a function of an answer or of a whole episode; and how it is declared: as a frozen dataclass.

The annotations and defaults of the class are also the keys, limits, descriptions and defaults of its YAML. pydantic
checks a mapping from YAML and a call in Python alike. A mistake is a `ConfigError` that names the setting and what is
allowed.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NoReturn, Protocol, TypeVar, cast, dataclass_transform, runtime_checkable

import pydantic
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ArgsKwargs

from .. import plugins
from ..configs.validation import Problem, describe_errors
from ..errors import ConfigError, describe_unknown
from ..records import Episode
from .fields import Answer, Reference

C = TypeVar("C", bound=type)

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

REWARD_TYPES: dict[str, type] = {}  # by the `type` in YAML


@runtime_checkable
class Reward(Protocol):
    """A pure function of the final answer and the task's reference.

    The score is finite and in [0, 1]; `None` means that the reward does not apply to this task. Whatever the answer, a
    reward does not raise; it may if it cannot be computed now, such as a judge that is down, and raises `Unmeasurable`
    if no answer can meet the reference.

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


# ---------------------------------------------------------------------- how it is declared
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
    owner = next(one for one in cls.__mro__ if "__init__" in vars(one))
    if not (owner is object or dataclasses.is_dataclass(owner) or getattr(owner, "_is_protocol", False)):
        problem = f"{cls.__name__}: has its own __init__, which its settings would replace"
        raise ConfigError(f'{problem}; allowed: annotated fields (`field: str = "label"`), and __post_init__')
    validated: Any = pydantic.dataclasses.dataclass(
        frozen=True, config=ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
    )(cls)
    signature = inspect.signature(validated)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        settings = signature.bind(*args, **kwargs).arguments
        _set_fields(self, validated, settings, validated.__name__, strict=True)

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
    return sorted({*REWARD_TYPES, *plugins.list_plugins("rewards")})


def get_reward_class(type: str) -> Any:
    """Return the class of a `type` in YAML.

    Rewards that do I/O live in rooms above this one, or in other packages. `plugins.py` names the module of each; it
    is imported when its type is first asked for, and registers its class. Raise `ConfigError` for an unknown type.
    """
    if type not in REWARD_TYPES:
        plugins.import_plugin("rewards", type)
    if type not in REWARD_TYPES:
        names = list_reward_types()
        raise ConfigError(describe_unknown("reward", type, names))
    return REWARD_TYPES[type]


def create_validated(cls: type, settings: Mapping[str, object], path: str, *, strict: bool = False) -> Any:
    """Return an instance of a `validated_dataclass`; `path` is where the settings stand, for the `ConfigError`.

    Unless `strict`, numbers may be text, as some YAML readers give them ("1e-3").
    """
    instance: Any = object.__new__(cls)
    _set_fields(instance, cls, settings, path, strict)
    return instance


def _set_fields(instance: Any, cls: Any, settings: Mapping[str, Any], path: str, strict: bool) -> None:
    values = ArgsKwargs((), dict(settings))
    try:
        cls.__pydantic_validator__.validate_python(values, strict=strict, self_instance=instance)
    except ValidationError as error:
        _raise_config_error(error, cls, settings, path)


def _raise_config_error(error: ValidationError, cls: Any, settings: Mapping[str, Any], path: str) -> NoReturn:
    cause = error.errors()[0].get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):  # raised in `__post_init__`; a message with a key begins with it
        joint, key = (".", f"{path}.{cause.key}") if cause.key else (": ", path)
        raise ConfigError(f"{path}{joint}{cause}", key=key) from error
    problems = describe_errors(error, cls, settings)
    located = [Problem(f"{path}.{problem.key}", problem.text) for problem in problems]
    raise ConfigError("\n".join(map(str, located)), key=located[0].key) from error
