"""Where the boxes of an answer lie: on the image, plane and slice that the reference names, or elsewhere."""

from collections.abc import Sequence
from typing import Any

from viewbox.rewards.fields import get_field, normalize_label, to_finite_float, to_text

MAX_PLACE = 100  # characters of a place; longer text is none


def name_other_place(answer: Any, reference: Any, places: Sequence[str]) -> str | None:
    """The first of the fields `places` in which an answer differs from the reference; `None` if it differs in none.

    A field that the reference does not have is not compared. A list of two numbers in the reference is the first and
    the last value that count.

    >>> name_other_place({"slice": 4, "plane": "Axial"}, {"slice": [3, 5], "plane": "axial"}, ["slice", "plane"])
    >>> name_other_place({"slice": 4}, {"slice": 3}, ["slice"])
    'slice'
    """
    for field in places:
        gold, given = get_field(reference, field), get_field(answer, field)
        if gold is None:
            continue
        if isinstance(gold, list | tuple):
            ends = [to_finite_float(end) for end in gold]
            number = to_finite_float(given)
            if len(ends) != 2 or number is None or ends[0] is None or ends[1] is None:
                return field
            if not ends[0] <= number <= ends[1]:
                return field
        elif not to_text(given) or normalize_label(to_text(given)[:MAX_PLACE]) != normalize_label(to_text(gold)):
            return field
    return None
