"""The texts that an environment sends to the model: Jinja2 templates, which an author can override.

The defaults are the files `core/prompts/*.j2`, one for each text. They are short, because each of them takes room in
the policy's context. Each template is compiled once. An invalid template is refused when the environment is made, not
in the middle of a run. They run in Jinja's own sandbox, which keeps them from files and from the objects of Python.
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ...errors import ConfigError, describe_unknown
from ...utils.frozen import FrozenDict
from ...utils.sanitize import replace_surrogates

# The values that each template gets, with examples. An author's template is tested on these examples.
VALUES: Final[Mapping[str, Mapping[str, Any]]] = FrozenDict(
    system={
        "system": "You read an image with a viewer's tools.",
        "unit": "fractions of the image",  # None: no tool and no answer takes coordinates
        "answer_format": '{"label": "…", "continue": false}',  # None: plain text answers
        "view_field": "view",  # or None
        "place": {"image": "image", "plane": "plane", "slice": "slice"},  # the answer's fields; each may be None
        "boxes": ["box"],  # the answer's fields with a box of a picture
        "boxes_3d": ["volume_box"],  # those with a box of a volume
        "changes_view": True,  # a tool may show something else than the whole image
        "several": False,  # several images are shown at the start
        "max_total_calls": 6,  # or None: no limit
        "max_turns": 10,
        "boundary": True,  # the text of tools is put between marks
        "named_images": 1,  # how many are shown at the start, if tools take the names of pictures; or 0
        "tools": True,  # at least one tool is offered
    },
    question={
        "question": "What is it?",
        "images": 20,
        "shown": ["image_1", "image_2"],  # the names of those whose pictures precede the question
        "names": "image_1 to image_20",  # of all
        "view": 0,  # the number of the first picture, or None: pictures have no numbers
        "reduced": True,  # a picture is smaller than it would be alone: they share a budget of pixels
        "switchable": True,  # open_image is offered
    },
    volume={  # said before the question if an image is a volume, or a picture with letters
        "oriented": ["image_1"],  # those of which it is known how they lie in the patient
        "unknown": ["image_2"],  # those whose header does not tell
        "lettered": ["image_3"],  # pictures whose sides are known
        "shared": False,  # all images of the task are of one of these kinds
    },
    malformed={"reason": "the reply is empty", "answer_format": '{"label": "…", "continue": false}', "tools": True},
    finalize={"answer_format": '{"label": "…", "continue": false}'},
    notes={"turn": 2, "max_turns": 10},
    more_images={  # said behind what a person says who shows more images after an answer
        "names": "image_2 and image_3",
        "several": True,
        "switchable": True,  # open_image is offered
    },
    last_turn={
        "keys": ["label", "continue"],  # empty: plain text answers
        "changed": True,  # the open view is not the original
        "whole": "the original image",  # what coordinates refer to: on a volume, a slice
        "fields": ["box"],  # the fields that hold a box of the original
    },
    original={"names": "image_1 and image_2"},  # before pictures that are shown again; None: there is one
    dropped={"number": 1},  # replaces an older picture that is no longer shown
    tools_hermes={"tools": ['{"type": "function", "function": {"name": "zoom"}}']},
    tools_fenced={"tools": ['{"type": "function", "function": {"name": "zoom"}}']},
    tools_json={"tools": ['{"type": "function", "function": {"name": "zoom"}}']},
)
JINJA: Final = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)


class Prompts:
    """The texts of an environment: the default templates, and `overrides` by template name (see `VALUES`).
    A final line break in a source is not part of the text. Raises `ConfigError` (its key is `templates.<name>`) if the
    template is unknown, if its source does not compile, or if it uses an unknown value.

    >>> Prompts().render("notes", turn=2, max_turns=4)
    'Your notes are saved. Turn 2 of 4: continue, or give the final answer.'
    >>> Prompts({"notes": "{{ max_turns - turn }} left."}).render("notes", turn=1, max_turns=4)
    '3 left.'
    """

    def __init__(self, overrides: Mapping[str, str] = FrozenDict()) -> None:
        self._templates = {**_load_defaults(), **{name: _compile(name, source) for name, source in overrides.items()}}

    def render(self, name: str, **values: object) -> str:
        """Return the text of a template; `values` has the keys of `VALUES[name]`."""
        try:
            return replace_surrogates(self._templates[name].render(values))
        except Exception as error:  # a template can raise anything while it is rendered
            raise _to_config_error(name, error) from error


@cache
def _load_defaults() -> Mapping[str, Template]:
    folder = resources.files("viewbox.core.prompts")
    return {name: JINJA.from_string((folder / f"{name}.j2").read_text("utf-8")) for name in VALUES}


@cache
def _compile(name: str, source: str) -> Template:
    """Compile an author's template and test it on the example values."""
    key = f"templates.{name}"
    if name not in VALUES:
        raise ConfigError(describe_unknown("template", name, VALUES), key=key)
    try:
        parsed = JINJA.parse(source)
        missing = meta.find_undeclared_variables(parsed) - VALUES[name].keys() - JINJA.globals.keys()
        for node in parsed.find_all(nodes.Name):
            if node.name in missing:
                problem = describe_unknown("value", node.name, VALUES[name])
                raise ConfigError(f"{key}: line {node.lineno}: {problem}", key=key)
        template = JINJA.from_string(source)
        template.render(VALUES[name])
    except TemplateSyntaxError as error:
        raise ConfigError(f"{key}: line {error.lineno}: {error.message}", key=key) from error
    except ConfigError:
        raise
    except Exception as error:  # a template can raise anything while it is rendered
        raise _to_config_error(name, error) from error
    return template


def _to_config_error(name: str, error: Exception) -> ConfigError:
    return ConfigError(f"templates.{name}: {type(error).__name__}: {error!s:.1000}", key=f"templates.{name}")
