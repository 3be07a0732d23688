"""What a call of a server's tool sends, and how what comes back is read: the same for `http` and `mcp`.

A server may say anything. Numbers that are no box of the picture, a mask of another size and a picture that cannot be
decoded are a fault of the server's. Pictures are decoded in other processes (`images.files`).
"""

import base64
import binascii
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from ...configs.sections import Section
from ...errors import ConfigError, ImageError, ToolError, ToolFault
from ...images.coordinates import to_unit
from ...images.files import open_image
from ...images.masks import choose_inside
from ...images.ref import ImageRef
from ...images.source import Source
from ...images.view import View
from ...utils.field_paths import convert_at
from ...utils.sanitize import replace_surrogates
from ...utils.secrets import mask_text, mask_values
from ...utils.values import to_finite_float
from ..arguments import ViewFractions
from ..builtin.drawing import COLORS, draw_mask, find_mask_box
from ..results import MAX_CHARACTERS, ToolOutput
from ..tool import Tool, is_tool_name
from .schemas import Parameters

MAX_PICTURE = 2**26  # pixels of a picture that a server sends
PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"

Unit = Literal["fraction", "pixel"]
Form = Literal["data_url", "base64"]
FieldName = Annotated[str, Field(min_length=1)]


class Returns(Section):
    """What the fields of a server's reply mean; every other field is a fact.

    A path of boxes or points is a field (`box`), a list (`boxes[]`), or a key in a list of objects (`findings[].box`).
    """

    text: Annotated[FieldName | None, Field(description="the field with the text that the model reads")] = None
    image: Annotated[FieldName | None, Field(description="the field with a picture to show: a PNG as Base64")] = None
    mask: Annotated[
        FieldName | None,
        Field(description="the field with a mask of the picture: a PNG as Base64, or rows of 0 and 1; it is drawn"),
    ] = None
    boxes: Annotated[tuple[FieldName, ...], Field(description="paths of boxes [x1, y1, x2, y2]")] = ()
    points: Annotated[tuple[FieldName, ...], Field(description="paths of points [x, y]")] = ()


def build_remote_tool(
    name: str, function: Any, parameters: Parameters, description: str, max_calls: int | None
) -> Tool:
    """Return a stateless tool whose coroutine function takes these parameters; raise `TypeError` for a name that is
    none."""
    if not is_tool_name(name):
        raise TypeError(f"{name!r} is not a tool name; allowed: letters, digits, _ and -")
    return Tool(
        name,
        function,
        description,
        parameters.properties,
        required=parameters.required,
        defaults={key: spec["default"] for key, spec in parameters.properties.items() if "default" in spec},
        max_calls=max_calls,
        takes_pictures=bool(parameters.get_names("picture")),
        stateful=False,
        is_async=True,
    )


def check_places(parameters: Parameters, returns: Returns, key: str) -> None:
    """Raise `ConfigError` if a point, box or mask would have no picture that it refers to."""
    takes = parameters.get_names("point") + parameters.get_names("box")
    if parameters.get_names("picture") or not (takes or returns.mask or returns.boxes or returns.points):
        return
    what = f"properties.{takes[0]} is a place" if takes else "returns names a box, point or mask"
    raise ConfigError(f"{key}: {what} in no picture; allowed: a property with `x-kind: picture` beside it", key=key)


def find_picture(parameters: Parameters, arguments: Mapping[str, Any]) -> View | None:
    """Return the first picture of a call, in which its points and boxes lie."""
    return next((arguments[name] for name in parameters.get_names("picture") if name in arguments), None)


def encode_arguments(
    parameters: Parameters, arguments: Mapping[str, Any], *, unit: Unit, form: Form
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments of a call in JSON's types, and its pictures as PNG by name."""
    view, pictures = find_picture(parameters, arguments), {}
    plain: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, View):
            picture = ImageRef.of(value.to_uint8())  # without letters, which a model would take for anatomy
            pictures[name] = picture.to_data_url()
            if form == "base64":
                pictures[name] = pictures[name].partition(",")[2]
        elif isinstance(value, ViewFractions):
            sides = view.size if view is not None and unit == "pixel" else (1, 1)
            plain[name] = [share * sides[place % 2] for place, share in enumerate(value)]
        else:
            plain[name] = value
    return plain, pictures


def read_reply(reply: Mapping[str, object], returns: Returns, unit: Unit, view: View | None, name: str) -> ToolOutput:
    """Return the reply of a server as the output of the tool `name`, whose call had the picture `view`.

    Raises:
        ToolFault: a field does not hold what `returns` says.
    """
    facts = dict(reply)
    try:
        for path in returns.boxes:
            facts = convert_at(facts, path, lambda value, place: _read_place(value, 4, unit, view, place))
        for path in returns.points:
            facts = convert_at(facts, path, lambda value, place: _read_place(value, 2, unit, view, place))
        text = facts.pop(returns.text, None) if returns.text else None
        if not isinstance(text, str | None):
            raise ToolError(f"{returns.text} is not text")
        picture = facts.pop(returns.image, None) if returns.image else None
        mask = facts.pop(returns.mask, None) if returns.mask else None
        image: Source | np.ndarray | None = None if picture is None else read_picture(picture, str(returns.image))
        beside: Sequence[tuple[View, Sequence[float]]] = ()
        if mask is not None and view is not None:
            inside, words = _read_mask(mask, view, str(returns.mask))
            text = "; ".join(filter(None, (text, words)))
            box = find_mask_box(inside)
            facts[str(returns.mask)] = {"share": float(inside.mean()), "box": box and ViewFractions(box)}
            if image is None:
                image, beside = draw_mask(view.to_picture(), inside, COLORS["red"]), ((view, (0.0, 0.0, 1.0, 1.0)),)
    except ToolError as error:
        raise ToolFault(f"{name} gave a reply that cannot be used: {error}") from None
    return ToolOutput(clean_text(text or ""), mask_values(facts), image, beside=beside)


def clean_text(text: str) -> str:
    """Return a server's text without the keys of this process and halves of characters, cut to what is stored at
    most."""
    return replace_surrogates(mask_text(text[:MAX_CHARACTERS]))


def read_picture(value: object, place: str, formats: Sequence[bytes] = (PNG,)) -> Source:
    """Return a picture that a server sent as Base64 or as a data URL; raise `ToolError`, which names the place.

    `formats` are the first bytes of the files that are allowed.
    """
    if not isinstance(value, str):
        raise ToolError(f"{place} is no picture: a {type(value).__name__}; expected: a PNG as Base64")
    text = value.partition(",")[2] if value.startswith("data:") else value
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ToolError(f"{place} is not Base64") from None
    return decode_picture(content, place, formats)


def decode_picture(content: bytes, place: str, formats: Sequence[bytes] = (PNG, JPEG)) -> Source:
    """Return the file of a picture, decoded in another process; raise `ToolError`, which names the place."""
    if not content.startswith(tuple(formats)):
        expected = "PNG or JPEG" if JPEG in formats else "PNG"
        raise ToolError(f"{place} is a picture of another format; expected: {expected}")
    if content.startswith(PNG) and len(content) >= 24 and math.prod(struct.unpack(">II", content[16:24])) > MAX_PICTURE:
        raise ToolError(f"{place} has more than {MAX_PICTURE} pixels")
    try:
        return open_image(content)
    except ImageError as error:
        raise ToolError(f"{place} cannot be decoded ({error})") from None


def _read_place(value: Any, length: int, unit: Unit, view: View | None, place: str) -> ViewFractions | None:
    """Return a point or box of a reply as fractions of the picture; None if the reply has none."""
    if value is None:
        return None
    is_list = isinstance(value, list | tuple) and len(value) == length
    if not is_list or any(to_finite_float(one) is None for one in value):
        raise ToolError(f"{place} is not {length} numbers")
    size = view.size if view is not None else (1, 1)
    found = ViewFractions(to_unit(value, "pixel" if unit == "pixel" else "unit", size, place))
    if length == 4 and not (found[0] <= found[2] and found[1] <= found[3]):
        raise ToolError(f"{place} ends before it begins; expected: [x1, y1, x2, y2]")
    return found


def _read_mask(value: Any, view: View, place: str) -> tuple[np.ndarray, str]:
    """Return a mask as bool (height, width) of the picture, and of a PNG, what is inside; raise `ToolError` if it is of
    another size."""
    width, height = view.size
    if isinstance(value, list):
        rows = [row if isinstance(row, list) and len(row) == width else None for row in value[: height + 1]]
        if len(value) != height or None in rows:
            raise ToolError(f"{place} is not a mask of the picture: {height} rows of {width} numbers are expected")
        if any(one not in (0, 1) for row in rows for one in row or ()):
            raise ToolError(f"{place} is not a mask: its numbers are not all 0 or 1")
        return np.array(rows, dtype=bool), ""
    source = read_picture(value, place)
    if source.size != view.size:
        sides = "{}x{}".format(*source.size)
        raise ToolError(f"{place} is a mask of {sides} pixels; the picture is of {width}x{height}")
    rule = choose_inside(source)
    return rule.find(source), f"inside of {place}: {rule.words}"
