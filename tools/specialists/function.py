"""`kind: function`: any function, or any object that can be called, as a tool.

    specialists:
      count: {kind: function, function: "my/tools.py:count", description: "Counts nodules."}

The function is imported when the environment is made, because its type hints are the schema. This runs its author's
code, so a run that comes from somebody else never gets as far: see `rollouts/scoring/trust.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from ...errors import ConfigError
from ...utils.importing import FORMS, load_object
from ..tool import Tool
from .spec import Specialist, register_specialist


@register_specialist("function")
class FunctionSpecialist(Specialist):
    """A function of your own: its type hints are the schema, its docstring the description."""

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
            raise ConfigError(
                f"{key} = {self.function!r}: is a {type(loaded).__name__}; allowed: a function, a `Tool`, or an object "
                "that can be called",
                key=key,
            )
        return [Tool.from_function(loaded, name, self.description, self.max_calls)]
