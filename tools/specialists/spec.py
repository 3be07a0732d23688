"""The contract of a specialist: a frozen pydantic model that a `kind` in YAML names and that declares tools.

    env:
      specialists:
        classify: {kind: classification, model: some/name}
        count:    {kind: function, function: "my.module:count", description: "Counts nodules."}

`build_tools` only declares: it loads no model, opens no connection and starts no process. What the function of a tool
needs before its first call is in its `prepare()`, which `BaseMultiTurnEnv.prepare` calls; what it can give back while
no episode is played is in its `release()`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from ... import registry
from ...configs.sections import Section
from ...configs.validation import describe_errors
from ...errors import ConfigError, describe_unknown
from ...utils.importing import FORMS, load_object
from ..tool import Tool

C = TypeVar("C", bound="type[Specialist]")

SEEN = "it gets pictures at the resolution of the file, of at most so many pixels; null: as shown"
MaxPixels = Annotated[int | None, Field(ge=1, description=SEEN)]
SPECIALISTS: "dict[str, type[Specialist]]" = {}  # by the `kind` in YAML
CALLABLE = "a function, a `Tool`, or an object that can be called"


class Specialist(Section):
    """The base of every kind; its fields are the keys of its YAML."""

    kind: ClassVar[str] = ""
    sends: ClassVar[str] = "pictures"  # what goes to `address`
    description: str | None = Field(
        default=None, min_length=1, description="what the model reads about the tool; default: the kind's own words"
    )
    max_calls: Annotated[
        int | None, Field(ge=0, description="calls of the tool in an episode; `max_calls` of the environment overrides")
    ] = None
    max_pixels: MaxPixels = None
    unwindowed: Annotated[
        Literal["measured", "stored"],
        Field(
            description="with `max_pixels`, black and white of a DICOM that asks for no window: the values that were "
            "measured, or (as in TorchXRayVision) all that its bits can hold"
        ),
    ] = "measured"

    @model_validator(mode="after")
    def _check_pictures(self) -> Self:
        if self.unwindowed == "stored" and self.max_pixels is None:
            raise ValueError("unwindowed = stored needs max_pixels")
        return self

    @property
    def address(self) -> str | None:
        """The URL that calls are sent to; None if they stay in this process or on this machine."""
        return None

    @property
    def waits(self) -> float | None:
        """Seconds for which a call waits for a server, which `tool_timeout` must exceed; None: for none."""
        return None

    @property
    def why_not_in_training(self) -> str | None:
        """Why no policy may be trained with it, and what is allowed instead; None if it may."""
        return None

    @property
    def why_not_for_a_person(self) -> str | None:
        """Why nobody may ask something of their own with it, and what is allowed instead; None if they may."""
        return None

    def build_tools(self, name: str) -> Sequence[Tool]:
        """Declare the tools. Nothing is loaded or asked: that is the work of `prepare()` of a tool's function.

        Args:
            name: the key in YAML. One tool has this name; several have names that begin with it and `_`.

        Raises:
            ConfigError: the tools cannot be declared; its key begins with `specialists.NAME`.
        """
        raise NotImplementedError


def register_specialist(kind: str) -> Callable[[C], C]:
    """Return a decorator: makes a `Specialist` the one of `kind: …` in YAML.

    >>> @register_specialist("constant")
    ... class Constant(Specialist):
    ...     text: str = "nothing found"
    ...     def build_tools(self, name):
    ...         def look() -> str:
    ...             "Looks at nothing."
    ...             return self.text
    ...         return [Tool.from_function(look, name, self.description, self.max_calls)]
    >>> [tool.name for tool in build_specialists({"look": {"kind": "constant"}})["look"].build_tools("look")]
    ['look']
    >>> del SPECIALISTS["constant"]
    """

    def register(cls: C) -> C:
        cls.kind = kind
        SPECIALISTS[kind] = cls
        return cls

    return register


def list_kinds() -> list[str]:
    """Return every `kind` that YAML may name, including kinds whose module is not imported yet."""
    return sorted({*SPECIALISTS, *registry.list_plugins("specialists")})


def get_specialist_class(kind: str) -> type[Specialist]:
    """Return the class of a `kind` in YAML; raise `ConfigError` if there is none.
    `registry.py` names the module of each kind; it is imported when the kind is first asked for."""
    if kind not in SPECIALISTS:
        registry.import_plugin("specialists", kind)
    if kind not in SPECIALISTS:
        raise ConfigError(describe_unknown("kind of specialist", kind, list_kinds()), key="kind")
    return SPECIALISTS[kind]


def build_specialists(specs: Mapping[str, object]) -> dict[str, Specialist]:
    """Return the specialists of the setting `specialists`, by name; those that are built already stay as they are."""
    return {str(name): _build_specialist(f"specialists.{name}", spec) for name, spec in specs.items()}


def _build_specialist(path: str, spec: Any) -> Specialist:
    if isinstance(spec, Specialist):
        return spec
    if not isinstance(spec, Mapping):
        allowed = f"a mapping with `kind` ({', '.join(list_kinds())}) and its keys"
        raise ConfigError(f"{path} = {spec!r:.80}; allowed: {allowed}", key=path)
    settings = dict(spec)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str):
        stated = "is missing" if kind is None else f"= {kind!r:.80}"
        raise ConfigError(f"{path}.kind {stated}; allowed: {', '.join(list_kinds())}", key=f"{path}.kind")
    try:
        cls = get_specialist_class(kind)
    except ConfigError as error:
        raise ConfigError(f"{path}.kind: {error}", key=f"{path}.kind") from error
    try:
        return cls.model_validate(settings)
    except ValidationError as error:
        problem = describe_errors(error, cls, settings, path)[0]
        raise ConfigError(str(problem), key=problem.key) from error


def declare_tools(specialists: Mapping[str, Specialist], taken: Mapping[str, Tool]) -> dict[str, Tool]:
    """Return the tools of all specialists, by name; none may have a name that is taken."""
    tools: dict[str, Tool] = {}
    for name, specialist in specialists.items():
        path = f"specialists.{name}"
        try:
            declared = specialist.build_tools(name)
        except TypeError as error:  # of a declaration: a name, a type hint
            raise ConfigError(f"{path}: {error}", key=path) from error
        for tool in declared:
            if tool.name in taken or tool.name in tools:
                problem = f"there is a tool named {tool.name!r} already; allowed: any other name"
                raise ConfigError(f"{path}: {problem}", key=path)
            if specialist.max_pixels is not None:
                if tool.stateful:
                    problem = f"{tool.name} works on the view; allowed: null, or a tool that takes pictures"
                    key = f"{path}.max_pixels"
                    raise ConfigError(f"{key} = {specialist.max_pixels}: {problem}", key=key)
                every = specialist.unwindowed == "stored"
                tool = replace(tool, max_pixels=specialist.max_pixels, all_levels=every)
            tools[tool.name] = tool
    return tools


def find_hook(tool: Tool, name: Literal["prepare", "release"]) -> Callable[[], None] | None:
    """Return a method of a tool's function (of its object, if the function is a method itself); None if it has none."""
    hook = getattr(getattr(tool.function, "__self__", tool.function), name, None)
    return hook if callable(hook) else None


@register_specialist("function")
class FunctionSpecialist(Specialist):
    """A function of your own: its type hints are the schema, its docstring the description.

    The function is imported when the environment is made, because its type hints are the schema. This runs its author's
    code, so a run that comes from somebody else never gets as far: see `rollouts/scoring/saved_run.py`.
    """

    function: Annotated[
        str, Field(min_length=1, description=f"{FORMS}: a function, a `Tool`, or an object that can be called")
    ]

    def build_tools(self, name: str) -> Sequence[Tool]:
        key = f"specialists.{name}.function"
        try:
            loaded = load_object(self.function, kind="function", key=key)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}", key=key) from error
        if isinstance(loaded, Tool):
            words = loaded.description if self.description is None else self.description
            limit = loaded.max_calls if self.max_calls is None else self.max_calls
            return [replace(loaded, name=name, description=words, max_calls=limit)]
        if not callable(loaded) or isinstance(loaded, type):
            raise ConfigError(f"{key} = {self.function!r}: is a {type(loaded).__name__}; allowed: {CALLABLE}", key=key)
        return [Tool.from_function(loaded, name, self.description, self.max_calls)]
