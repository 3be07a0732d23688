"""The settings of an environment: every constant of the turn loop, its default and its range; and how they are checked.

An author writes settings as annotated class attributes. They become the fields of a frozen pydantic model, one per
environment class, and `viewbox.make(name, max_turns=6)` fills it in. `docs/loop.md` says what each rule does and names
the test that holds it.
"""

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..configs.sections import Section
from ..configs.validation import describe_errors, describe_type
from ..configs.yaml_reader import check_finite
from ..errors import ConfigError, describe_unknown
from ..images.coordinates import Coordinates
from ..tools import to_tool_names
from ..tools.builtin.windows import WindowName, WindowPreset
from ..utils.frozen import FrozenDict

NonNegative = Annotated[int, Field(ge=0)]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]  # text that is no path and no address
ReplyFormat = Literal["native", "hermes", "fenced", "json"]
MAX_TURNS_CEILING = 30
IDLE_TURNS = 3  # turns without a tool call after which notes are answered with "give your final answer"


class Window(Section):
    """The history policy that shows the model only its last few images and results; placeholders replace older ones."""

    last_images: Annotated[int | None, Field(ge=1)] = None
    last_turns: Annotated[int | None, Field(ge=1)] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.last_images is None and self.last_turns is None:
            raise ValueError("one of last_images and last_turns is needed")
        return self


History = Literal["full"] | Window


class SeenAt(Section):
    """From when on what is asked counts as seen in a picture (`rewards/looks.py`)."""

    scale: Annotated[float, Field(gt=0)] | None = None
    contrast: Annotated[float, Field(gt=0)] | None = None


class ViewSettings:
    """What the model may do with the image, and how large it is shown; `BaseMultiTurnEnv` inherits them all."""

    # A class may also list functions and `Tool`s here; an environment holds their names.
    tools: Annotated[
        tuple[str, ...], BeforeValidator(to_tool_names), Field(description="names of the tools the model may call")
    ] = ("zoom", "crop", "adjust_contrast", "reset")
    coordinates: Annotated[
        Coordinates,
        Field("unit", description="how points and boxes are written; default in a run: as the model was trained to"),
    ]
    windows: Annotated[
        Mapping[WindowName, WindowPreset],
        Field(
            FrozenDict(),
            description="presets of window_level by name, beside the built-in ones: {center: -600, width: 1500, "
            "unit: HU}, or {percentiles: [1, 99]} of the volume's values",
        ),
    ]
    specialists: Annotated[
        Mapping[str, Any],
        Field(
            FrozenDict(),
            description="tools by name, added to `tools`: a model, a function or a server, chosen by its `kind` "
            "(listed below)",
        ),
    ]
    max_pixels: Annotated[int, Field(512 * 512, ge=256, description="largest view, in pixels (width x height)")]
    pixel_multiple: Annotated[
        int,
        Field(1, ge=1, description="sides of a view are multiples of this; default in a run: the model's patch grid"),
    ]
    seen_at: Annotated[
        SeenAt,
        Field(
            SeenAt(),
            description="what is asked counts as seen from so many shown pixels for one of the image on (`scale`; "
            "default: 1, or 16 across it), and so many of 255 gray levels between it and what is around it "
            "(`contrast`; default: any)",
        ),
    ]


class LoopSettings:
    """The settings of the turn loop; `BaseMultiTurnEnv` inherits them all."""

    max_turns: Annotated[int, Field(10, ge=1, description="replies of the model in an episode, the answer included")]
    max_calls: Annotated[
        Mapping[str, NonNegative],
        Field(
            FrozenDict(),
            description="calls of a tool that run in an episode, by tool name; refused ones are not counted",
        ),
    ]
    max_total_calls: Annotated[
        NonNegative | None, Field(None, description="calls of all tools together that run in an episode")
    ]
    max_calls_per_turn: Annotated[
        int, Field(16, ge=1, description="calls of one reply that are run; further calls get an error as their result")
    ]
    tool_timeout: Annotated[float | None, Field(60.0, gt=0, description="seconds after which a tool call is abandoned")]
    on_tool_fault: Annotated[
        Literal["end", "tell"] | None,
        Field(
            None,
            description="end: a tool that raises, hangs or cannot be reached ends the episode as `error`; tell: the "
            "model reads what failed, and after three faults the tool is withdrawn. Default: tell in `viewbox ask`, "
            "`viewbox rollout` and `env.play`; end elsewhere",
        ),
    ]
    max_tool_chars: Annotated[int, Field(8000, ge=100, description="characters of a tool's text that the model reads")]
    boundary: Annotated[
        bool, Field(True, description="wrap each tool's text in marks with a random code: it is data, not instructions")
    ]
    max_consecutive_malformed: Annotated[
        NonNegative,
        Field(2, description="which malformed reply in a row is answered with the demand for the final answer"),
    ]
    max_malformed: Annotated[
        int,
        Field(
            5, ge=1, description="malformed replies in total that end the episode, and replies with refused calls only"
        ),
    ]
    history: Annotated[
        History,
        Field(
            "full",
            description="full: messages only grow (training); {last_images: k, last_turns: n}: placeholders replace "
            "older images, and the words of what came before the last n replies",
        ),
    ]
    reply_format: Annotated[
        ReplyFormat,
        Field(
            "native",
            description="how tool calls are taught (native: by the API or the chat template); all formats are read",
        ),
    ]
    thinking: Annotated[
        tuple[tuple[str, str], ...],
        Field(
            (("<think>", "</think>"),),
            description="pairs of tags around thinking, which is never read. Default in a run: the model's own",
        ),
    ]
    templates: Annotated[
        Mapping[str, str],
        Field(
            FrozenDict(),
            description="Jinja2 sources by name that replace those of core/prompts: what the environment says",
        ),
    ]


@cache
def model_of(cls: type) -> type[BaseModel]:
    """Return the settings of an environment class as a frozen pydantic model: its annotated public class attributes. A
    default stands in the annotation or is the attribute's value; a class may replace a value without an annotation."""
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        if name.startswith("_") or name in ("reward", "restricted") or get_origin(hint) is ClassVar:
            continue  # no config lifts a restriction
        declared = [info.default for info in getattr(hint, "__metadata__", ()) if isinstance(info, FieldInfo)]
        default = getattr(cls, name, *declared[-1:] or [PydanticUndefined])
        if default is not PydanticUndefined:
            fields[name] = (hint, default)
    config = ConfigDict(extra="forbid", validate_default=True, frozen=True, allow_inf_nan=False)
    return create_model(f"{cls.__name__}Settings", __config__=config, **fields)


def resolve_settings(cls: type, given: Mapping[str, object]) -> BaseModel:
    """Return all settings of a new environment; the given ones are checked by type and range. Templates are merged with
    the author's, and `max_turns` is at most 30. Raise `ConfigError` if a setting is unknown or has an invalid value;
    its `key` is the setting."""
    model = model_of(cls)
    env_name = getattr(cls, "name", cls.__name__)
    for name in given:
        if name not in model.model_fields:
            raise ConfigError(f"{env_name}: {describe_unknown('setting', name, model.model_fields)}", key=name)
    check_finite(given, lambda _: env_name)
    try:
        settings = model.model_validate(dict(given))
    except ValidationError as error:
        problem = describe_errors(error, model, given)[0]
        raise ConfigError(f"{env_name}: {problem}", key=problem.key) from error
    for name, value in given.items():
        if isinstance(value, bool) and type(getattr(settings, name)) in (int, float):  # pydantic reads true as 1
            field = model.model_fields[name]
            allowed = describe_type(field.annotation, field.metadata)
            raise ConfigError(f"{env_name}: {name} = {value}; allowed: {allowed}", key=name)
    values = dict(settings)
    max_turns, multiple = values["max_turns"], values["pixel_multiple"]
    if max_turns > MAX_TURNS_CEILING:
        warnings.warn(f"max_turns = {max_turns}: clamped to {MAX_TURNS_CEILING}", stacklevel=3)
    if multiple**2 > values["max_pixels"]:
        raise ConfigError(
            f"{env_name}: max_pixels = {values['max_pixels']}; "
            f"allowed with pixel_multiple = {multiple}: at least {multiple**2}",
            key="max_pixels",
        )
    changes = {
        "max_turns": min(max_turns, MAX_TURNS_CEILING),
        "max_calls": FrozenDict(values["max_calls"]),
        "windows": FrozenDict(values["windows"]),
        "templates": FrozenDict({**model.model_fields["templates"].default, **values["templates"]}),
    }
    return settings.model_copy(update=changes)
