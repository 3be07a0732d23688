"""Filters of episodes, `field op value`, as `viewbox score --where` takes them.

    end_reason=answered    answer.label=one|seven    task.metadata.seed>=100    flags=salvaged    reward<0.5
    run_config.model_name~qwen.*4b    num_turns>2    tool=zoom    answer=null    reward.box>=0.5    step>=90

A field is a dotted path into the episode's JSON, or `num_turns`, `tool_call_count`, `tools_used`; or `verdict` and
`looks.covered`, and others of `rewards/looks.py`. Short names stand for some paths (`SHORT`): `reward` is
`scores.total`, `reward.box` is `scores.components.box`. `utils/conditions.py` says what the operators compare.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...errors import ConfigError, describe_unknown
from ...records import Episode, RunConfig, Scores, Task, ToolCall, ToolResult, Turn
from ...rewards.looks import VALUES, read_looks
from ...utils.conditions import format_value, parse_condition
from ...utils.field_paths import follow_path
from ...utils.frozen import PlainRecord

MAX_READ = 1000  # episodes whose names are kept for a message
_PROPERTIES = ("num_turns", "tool_call_count", "tools_used")
LOOKED = ("verdict", "looks")  # what `Looks.to_dict` has
SHORT = {  # name -> (what it stands for alone, what it stands for before a dot)
    "reward": ("scores.total", "scores.components"),
    "reference": ("task.reference", "task.reference"),
    "task": ("task.id", "task"),
    "tool": ("tools_used", "tools_used"),
    "step": ("info.step", "info.step"),
    "sample": ("info.sample", "info.sample"),
}
_EMPTY = Turn("user", tool_calls=(ToolCall("", ""),), tool_results=(ToolResult(""),))
_UNSAID = f"{format_value(_EMPTY)} null true false user assistant tool_result".casefold()
_INNER: dict[str, type[PlainRecord]] = {"task": Task, "scores": Scores, "run_config": RunConfig}


def parse_filter(text: str, source: str = "--where") -> Callable[[Episode], bool]:
    """Parse a condition into a function that returns whether an episode meets it; raise `ConfigError`.
    `source` is the option or key that holds the condition, for errors.

    >>> from viewbox.records import Task
    >>> episode = Episode(Task("t1", metadata={"seed": 3}), answer={"label": "one"}, flags={"salvaged"})
    >>> texts = ("answer.label=one|two", "task.metadata.seed > 3", "flags!=x", "task.id~^T")
    >>> [parse_filter(text)(episode) for text in texts]
    [True, False, True, True]
    >>> parse_filter("task.idd=t1")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: --where 'task.idd=t1': unknown field of task 'idd'; allowed: id, images, metadata, \
prompt, reference (did you mean 'id'?)
    """
    field, test = parse_condition(text, source, "end_reason=answered")
    field = expand_field(field)
    try:
        check_field(field)
    except ConfigError as error:
        raise ConfigError(f"{source} {text!r}: {error}") from error
    return lambda episode: test(get_field(episode, field))


def find_letters(text: str) -> re.Pattern[str] | None:
    """Return what the line of each episode that meets a condition on its turns matches, too; None if nothing is sure.

    >>> [bool(find_letters(f"turns~{words}")) for words in ("No lesion", "no.*lesion", "content")]
    [True, False, False]
    """
    form = re.fullmatch(r"\s*turns(?:\.[\w.]+)?\s*~\s*([A-Za-z][A-Za-z ]+?)\s*", text)
    is_sure = form and form[1].casefold() not in _UNSAID  # a line need not hold the names of fields that are empty
    return re.compile(form[1], re.IGNORECASE) if form and is_sure else None


def expand_field(field: str) -> str:
    """Return the path that a field with a short name stands for.

    >>> expand_field("reward"), expand_field("reward.box"), expand_field("answer.reward")
    ('scores.total', 'scores.components.box', 'answer.reward')
    """
    first, dot, rest = field.partition(".")
    alone, before = SHORT.get(first, (first, first))
    return f"{before}.{rest}" if dot else alone


def check_field(field: str) -> None:
    """Raise `ConfigError` if no episode can have the field."""
    first, _, rest = expand_field(field).partition(".")
    names = dict.fromkeys([*Episode.list_fields(), *_PROPERTIES, *LOOKED, *SHORT])
    if first not in names:
        raise ConfigError(describe_unknown("field", first, names))
    second = rest.partition(".")[0]
    if second and first in _INNER and second not in _INNER[first].list_fields():
        raise ConfigError(describe_unknown(f"field of {first}", second, _INNER[first].list_fields()))
    if second and first == "looks" and second not in VALUES:
        raise ConfigError(describe_unknown("field of looks", second, VALUES))


def describe_fields() -> dict[str, object]:
    """Return the names that a field may begin with, for a program that reads the same filters."""
    inner = {name: record.list_fields() for name, record in _INNER.items()}
    names = [*Episode.list_fields(), *_PROPERTIES, *LOOKED, *SHORT]
    return {"names": names, "inner": {**inner, "looks": [*VALUES]}, "short": SHORT}


def write_fields(episode: Episode) -> str:
    """Return every field of an episode as JSON, its values written as `format_value` writes them."""
    values = {name: getattr(episode, name) for name in (*Episode.list_fields(), *_PROPERTIES)}
    values |= read_looks(episode).to_dict()
    return format_value({name: value() if callable(value) else value for name, value in values.items()})


def explain_missing(episodes: Iterable[Episode], field: str) -> str:
    """Return why no episode has the field, with the nearest name that the first of them have; "" if one has it."""
    near: set[str] = set()
    head, dot, last = expand_field(field).rpartition(".")
    for number, episode in enumerate(episodes):
        if get_field(episode, field) is not None:
            return ""
        owner = get_field(episode, head) if dot and number < MAX_READ else None
        near.update(map(str, owner) if isinstance(owner, Mapping) else ())
    problem = describe_unknown(f"field of {head or 'an episode'}", last, sorted(near))
    return f"no episode has the field {field}: {problem}"


def get_field(episode: Episode, field: str) -> Any:
    """Return the value at a dotted path (`follow_path`), or None.

    >>> from viewbox.records import Task
    >>> get_field(Episode(Task("t1", metadata={"boxes": [[0, 1]]})), "task.metadata.boxes.0")
    (0, 1)
    """
    field = expand_field(field)
    head, _, rest = field.partition(".")
    if head in _PROPERTIES:
        value = getattr(episode, head)
        return follow_path(value() if callable(value) else value, rest)
    return follow_path(read_looks(episode).to_dict() if head in LOOKED else episode, field)
