"""`write_project`: a new package with one working environment, which passes `viewbox check` as it is.

In the files, `@name@`, `@module@`, `@class_name@`, `@viewbox@` and `@year@` are filled in.
"""

import datetime
import keyword
import re
import sys
from pathlib import Path

from ..errors import ConfigError
from ..version import __version__

ENVIRONMENT = '''\
"""@class_name@: how many bright discs are in the picture?

Change the picture, the question, the answer and the reward: docs/authoring.md of viewbox goes on from here.
"""

import numpy as np
import viewbox
from PIL import Image, ImageDraw
from pydantic import BaseModel, Field
from viewbox.core.tasks import ProceduralTasks

SIZE, CELL, RADIUS = 480, 60, 4  # pixels: the side of the picture, of a cell of its grid, and the radius of a disc


class Answer(BaseModel):
    discs: int = Field(description="how many bright discs the picture shows")


class @class_name@(viewbox.BaseMultiTurnEnv):
    """How many bright discs are in the picture?"""

    name = "@name@"
    answer = Answer
    tools = ("zoom", "reset")
    max_turns = 4
    reward = viewbox.ExactMatchReward("discs")

    num_tasks: int = 1000  # a setting: viewbox.make("@module@.env:@class_name@", num_tasks=50)

    @property
    def tasks(self):
        return ProceduralTasks(self.num_tasks, self.task)

    def task(self, seed):
        """The task of a seed: everything random is drawn from it, so that the task is always the same."""
        count = int(np.random.default_rng(seed).integers(1, 9))
        question = {"question": "How many bright discs are there?", "seed": seed}
        return viewbox.Task(f"@name@-{seed}", prompt=question, reference={"discs": count})

    def system_prompt(self, task):
        return "You count small bright discs. Zoom in where they are close together."

    def images(self, task):
        random = np.random.default_rng([task.prompt["seed"], 1])
        picture = Image.fromarray(random.integers(0, 60, (SIZE, SIZE), dtype=np.uint8))
        draw = ImageDraw.Draw(picture)
        cells = random.choice((SIZE // CELL) ** 2, task.reference["discs"], replace=False)
        for row, column in (divmod(int(cell), SIZE // CELL) for cell in cells):
            x, y = random.integers(RADIUS, CELL - RADIUS, 2) + (column * CELL, row * CELL)
            draw.ellipse((x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS), fill=230)
        return [picture]


if __name__ == "__main__":
    env = @class_name@()
    look = '{"name": "zoom", "arguments": {"center": [0.5, 0.5], "factor": 2}}'
    policy = viewbox.ScriptedPolicy([f"<tool_call>{look}</tool_call>", '{"discs": 3}'])
    episode = env.play(env.tasks[0], policy)
    for turn in episode.turns:
        print(f"{turn.role}: {turn.content}")
    print(episode.end_reason, episode.scores.total)
'''

TESTS = '''\
"""The right answer scores 1.0, others less, and a seed is always the same task."""

import viewbox
from viewbox.rewards.explain import check_rewards

from @module@.env import @class_name@

ENV = @class_name@(num_tasks=20)


def test_the_right_answer_scores_1_and_another_0():
    for task in ENV.tasks:
        assert ENV.play(task, viewbox.ScriptedPolicy([ENV.write_answer(task)])).scores.total == 1.0
        assert ENV.play(task, viewbox.ScriptedPolicy(['{"discs": 0}'])).scores.total == 0.0


def test_the_reward_has_no_hole():
    assert check_rewards(ENV) == []


def test_a_seed_is_always_the_same_picture():
    task = ENV.tasks[3]
    assert ENV.images(task)[0].tobytes() == @class_name@().images(@class_name@().tasks[3])[0].tobytes()


def test_every_disc_is_seen():
    for task in ENV.tasks:
        bright = (ENV.images(task)[0].point(lambda value: 255 * (value > 200))).histogram()[255]
        assert 40 * task.reference["discs"] < bright < 100 * task.reference["discs"]
'''

PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "@name@"
version = "0.1.0"
description = "How many bright discs are in the picture? An environment for vision-language models."
readme = "README.md"
license = "MIT"
license-files = ["LICENSE"]
requires-python = ">=3.11"
keywords = ["viewbox", "reinforcement learning", "vision-language model", "counting"]
dependencies = ["viewbox>=@viewbox@", "numpy>=1.26", "pillow>=11", "pydantic>=2.10"]

[project.optional-dependencies]
test = ["pytest>=8"]

# What `viewbox check` and `viewbox publish` open.
[project.entry-points."viewbox.environments"]
@name@ = "@module@.env:@class_name@"

[tool.hatch.build.targets.wheel]
packages = ["@module@"]
"""

README = """\
# @name@

How many bright discs are in the picture? A viewbox environment: the model sees a picture, may zoom, and answers
`{"discs": 3}`. The reward is 1 if the number is right. Pictures are drawn from a seed.

```bash
pip install -e '.[test]'
python -m @module@.env          # one episode, in words
pytest                          # the tests
viewbox check .                 # everything a hub asks for, with how to mend each
viewbox publish . --to dir ../@name@-package
```

If pip does not find viewbox on your index, install it from its checkout first.

With a model behind an OpenAI-compatible server:

```bash
viewbox rollout --env @module@.env:@class_name@ --endpoint http://127.0.0.1:8000/v1 --model MODEL --tasks 20
```

License: MIT. The pictures are drawn by the code; no data of others is in here.
"""

LICENSE = """\
MIT License

Copyright (c) @year@ the authors of @name@

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""

WORKFLOW = """\
name: test
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: pip install -e '.[test]'   # needs an index that has viewbox
      - run: pytest
      - run: viewbox check .
"""

IGNORED = """\
.env*
outputs/
__pycache__/
*.egg-info/
.venv/
build/
dist/
runs/
"""

FILES = {
    "pyproject.toml": PYPROJECT,
    "README.md": README,
    "LICENSE": LICENSE,
    ".gitignore": IGNORED,
    ".github/workflows/test.yml": WORKFLOW,
    "{module}/__init__.py": '"""How many bright discs are in the picture?"""\n',
    "{module}/env.py": ENVIRONMENT,
    "tests/test_env.py": TESTS,
}


TAKEN = ("viewbox", "verifiers", "tests", "test")


def write_project(name: str, folder: str | Path = ".") -> Path:
    """Write a package with an environment, its tests, a README, a license and a file for CI.

    Args:
        name: of the package: lower-case letters and digits in words joined by '-'.
        folder: where the new folder `name` is made.

    Returns:
        The new folder.

    Raises:
        ConfigError: the name cannot be that of a package, or the folder exists.
    """
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(f"name {name!r}; allowed: lower-case letters and digits in words joined by -", given=name)
    if module in TAKEN or module in sys.stdlib_module_names or keyword.iskeyword(module):
        raise ConfigError(f"name {name!r}: the module {module} is taken; allowed: another name", given=name)
    root = Path(folder) / name
    if root.exists():
        raise ConfigError(f"{root} exists; allowed: a name whose folder does not exist", given=name)
    fields = {
        "name": name,
        "module": module,
        "class_name": "".join(part.capitalize() for part in name.split("-")),
        "viewbox": ".".join(__version__.split(".")[:2]),
        "year": str(datetime.date.today().year),
    }
    for path, text in FILES.items():
        file = root / path.format(**fields)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(re.sub(r"@(\w+)@", lambda found: fields[found[1]], text), encoding="utf-8")
    return root
