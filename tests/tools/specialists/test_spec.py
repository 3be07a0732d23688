"""The setting `specialists`: kinds by name, tools appended, errors that name the key, torch loaded by models alone."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
from pydantic import Field

import viewbox
from tests.support.refusals import check_refusal
from tests.support.replies import call
from tests.support.tables import each
from viewbox.core.base import BaseMultiTurnEnv, remove_tools
from viewbox.envs.mixture import Mixture
from viewbox.errors import ConfigError
from viewbox.records import Task
from viewbox.rewards import TokenF1Reward
from viewbox.tools import Picture, Tool
from viewbox.tools.specialists import Specialist, register_specialist
from viewbox.tools.specialists.spec import SPECIALISTS

METER = {"kind": "meter"}


class Ward(BaseMultiTurnEnv):
    name = "ward"
    tools = ("zoom",)
    reward = TokenF1Reward("text")

    @property
    def tasks(self):
        return [Task(f"t{number}", reference={"text": "done"}) for number in range(3)]

    def images(self, task):
        return [np.full((32, 48), 40, np.uint8)]


class Meter:
    """A tool that must be prepared; it remembers what was asked of it."""

    def __init__(self, path=None, fails=None):
        self.path, self.fails, self.prepared, self.calls = path, fails, 0, 0

    def prepare(self):
        if self.fails is not None:
            raise ConfigError(f"{self.path}.model = {self.fails!r}: no such folder", key=f"{self.path}.model")
        self.prepared += 1

    def __call__(self, image: Picture, part: str = "all") -> dict:
        """Measures a picture."""
        self.calls += 1
        return {"mean": float(image.to_gray().mean())}


@pytest.fixture
def meter():
    """The kind `meter`; the last `Meter` of each name is in its `made`."""

    @register_specialist("meter")
    class MeterSpecialist(Specialist):
        """Measures the mean."""

        model: str | None = None
        at_least: Annotated[int, Field(ge=1)] = 1

        def build_tools(self, name):
            made[name] = Meter(f"specialists.{name}", self.model)
            return [Tool.from_function(made[name], name, self.description, self.max_calls)]

    made: dict[str, Meter] = {}
    yield made
    del SPECIALISTS["meter"]


def test_its_tool_is_added_to_those_of_the_environment_which_may_put_it_at_another_place(meter):
    env = Ward(specialists={"density": METER})
    assert env.tools == ("zoom", "density")
    episode = env.play(env.tasks[0], viewbox.ScriptedPolicy([call("density", image="image_1"), "done"]))
    assert episode.turns[2].tool_results[0].facts == {"mean": 40.0}
    assert Ward.tools == ("zoom",)
    assert Ward(specialists={"density": METER}, tools=["density", "zoom"]).tools == ("density", "zoom")


def test_a_kind_may_be_offered_twice_with_words_and_limits_of_its_own(meter):
    env = Ward(specialists={"one": {**METER, "max_calls": 1}, "two": {**METER, "description": "Other."}})
    described = {schema["function"]["name"]: schema["function"]["description"] for schema in env.tool_schemas}
    assert described["one"] == "Measures a picture. At most 1 call."
    assert described["two"] == "Other."
    assert env.toolbox.get_max_calls("two") is None
    assert Ward(specialists={"one": METER}, max_calls={"one": 2}).toolbox.get_max_calls("one") == 2


def test_nothing_is_prepared_until_somebody_asks_or_plays_with_tools_and_a_failure_ends_the_run(meter):
    env = Ward(specialists={"one": METER, "two": METER})
    assert [meter[name].prepared for name in ("one", "two")] == [0, 0]
    env.prepare()
    assert [meter[name].prepared for name in ("one", "two")] == [1, 1]
    env = Ward(specialists={"density": {**METER, "model": "gone"}})
    policy = viewbox.ScriptedPolicy(["done"])

    async def play():
        return [episode async for episode in viewbox.play_many(env, env.tasks, policy)]

    for run in (lambda: env.play(env.tasks[0], policy), lambda: asyncio.run(play())):
        with pytest.raises(ConfigError, match=r"specialists\.density\.model = 'gone'"):
            run()
    for refuse in (False, True):
        without = remove_tools(Ward(specialists={"density": {**METER, "model": "gone"}}), refuse=refuse)
        assert without.play(without.tasks[0], viewbox.ScriptedPolicy(["done"])).end_reason == "answered"


def test_a_method_is_prepared_by_its_object():
    class Reader(Meter):
        def read(self, image: Picture) -> str:
            """Reads."""
            return "words"

    reader = Reader()

    class Library(Ward):
        tools = (Tool.from_function(reader.read),)

    Library().prepare()
    assert reader.prepared == 1


def test_a_mixture_prepares_each_environment_by_itself(meter):
    parts = {key: {"name": "digits", "specialists": {"density": METER}} for key in "ab"}
    first = Mixture(environments=parts)
    made = [part.toolbox["density"].function for part in first.parts.values()]
    first.prepare()
    assert [one.prepared for one in made] == [1, 1]
    parts["b"] = {"name": "digits", "specialists": {"density": {**METER, "model": "gone"}}}
    key = "environments.b.specialists.density.model"
    check_refusal(Mixture(environments=parts).prepare, key, "environments.b: specialists.density.model")


def function(name=None, **more):
    return {"a": {"kind": "function", **({"function": name} if name else {}), **more}}


@each("specs, key, says", [
    ({"a": {"kind": "metre"}}, "a.kind", "unknown kind of specialist 'metre'; allowed: "),
    ({"a": {}}, "a.kind", "specialists.a.kind is missing; allowed: "),
    ({"a": {"kind": 3}}, "a.kind", "specialists.a.kind = 3; allowed: "),
    ({"a": "meter"}, "a", "specialists.a = 'meter'; allowed: a mapping with `kind`"),
    ({"a": {**METER, "at_lest": 2}}, "a.at_lest", "did you mean 'at_least'?"),
    ({"a": {**METER, "at_least": 0}}, "a.at_least", "allowed: a whole number of at least 1"),
    ({"a b": METER}, "a b", "'a b' is not a tool name; allowed: letters, digits, _ and -"),
    ({"zoom": METER}, "zoom", "there is a tool named 'zoom' already"),
    (function(), "a.function", "specialists.a.function: is missing; allowed: text"),
    (function("math"), "a.function", "package.module:Name"),
    (function("math:squrt"), "a.function", "did you mean 'sqrt'?"),
    (function("math:pi"), "a.function", "is a float; allowed: a function"),
    (function("math:sqrt"), "a", "no type hint"),
    (function("viewbox.tools.builtin.geometry:zoom", max_pixels=9), "a.max_pixels",
     "a works on the view; allowed: null"),
    ({"a": {**METER, "unwindowed": "stored"}}, "a", "unwindowed = stored needs max_pixels"),
])  # fmt: skip
def test_a_mistake_is_named_with_what_is_allowed(meter, specs, key, says):
    assert check_refusal(lambda: Ward(specialists=specs), f"specialists.{key}", says).startswith("ward: ")


TOOLS = """
from viewbox import Picture, Tool

def brightness(image: Picture) -> dict:
    "The mean gray value."
    return {"mean": float(image.to_gray().mean())}

limited = Tool.from_function(brightness, "limited", "Only once.", 1)

class Counter:
    def prepare(self):
        self.ready = True
    def __call__(self, image: Picture) -> str:
        "Counts."
        return f"ready: {self.ready}"

counter = Counter()

def fail() -> str:
    "Fails."
    raise RuntimeError("secret")
"""


def test_any_function_is_a_tool_that_keeps_its_words_and_limit_unless_the_yaml_has_others(tmp_path):
    (tmp_path / "own.py").write_text(TOOLS)

    def make(name, **more):
        return {"kind": "function", "function": f"{tmp_path / 'own.py'}:{name}", **more}

    def ask(name, **arguments):
        env = Ward(specialists={"mine": make(name)}, on_tool_fault="end")
        play = viewbox.ScriptedPolicy([call("mine", **arguments), "done"])
        result = env.play(env.tasks[0], play).turns[2].tool_results[0]
        return result.tool_name, result.description, result.facts

    for name, right in (("brightness", ("found", {"mean": 40.0})), ("limited", ("found", {"mean": 40.0})),
                        ("counter", ("ready: True", {}))):  # fmt: skip
        assert ask(name, image="image_1") == ("mine", *right)
    with pytest.raises(viewbox.ToolFault, match=r"mine failed \(RuntimeError\)"):  # what a function raises is a fault
        ask("fail")
    other = make("limited", description="Other.", max_calls=3)
    env = Ward(specialists={"a": make("limited"), "b": other})
    assert (env.toolbox["a"].description, env.toolbox.get_max_calls("a")) == ("Only once.", 1)
    assert (env.toolbox["b"].description, env.toolbox.get_max_calls("b")) == ("Other.", 3)


CONFIG = Path(viewbox.__file__).with_name("configs") / "chest_xray.yaml"
CODE = """
import importlib, pkgutil, sys
import yaml
import viewbox, viewbox.tools.specialists.models
from viewbox.tools.specialists import get_specialist_class, list_kinds

def list_heavy():
    return sorted({"torch", "transformers", "torchvision"} & set(sys.modules))

for kind in list_kinds():
    get_specialist_class(kind)
for module in pkgutil.iter_modules(viewbox.tools.specialists.models.__path__):
    importlib.import_module(f"viewbox.tools.specialists.models.{module.name}")
specs = yaml.safe_load(open(sys.argv[1]))["env"]["specialists"]
env = viewbox.make("chest_xray", questions=["which"], specialists=specs)
state = env.reset(env.tasks[0], seed=0)
assert all(name in env.tools for name in specs)
env.build_system_prompt(env.tasks[0]), env.tool_schemas
print(list_heavy())
shipped = {"kind": "classification", "model": "package:chest_classifier", "device": "cpu"}
env = viewbox.make("chest_xray", questions=["which"], specialists={"classify": shipped})
print(list_heavy())
env.prepare()
print("torch" in list_heavy())
"""


@pytest.mark.slow
def test_nothing_imports_torch_until_a_model_is_loaded(tmp_path):
    command = [sys.executable, "-c", CODE, str(CONFIG)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["[]", "[]", "True"]
