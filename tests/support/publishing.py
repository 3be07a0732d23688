"""`publish` with less of its check, for tests of what else it does."""

import zipfile
from functools import partial
from io import BytesIO

from viewbox.publish.checks import check_package

DOTS = '''
"""A dot on a plain field."""
from PIL import Image
from viewbox import BaseMultiTurnEnv, Task
from viewbox.rewards import ExactMatchReward
{imports}

class Dots(BaseMultiTurnEnv):
    """How bright is the field?"""

    name = "dots"
    answer = {{"type": "object", "properties": {{"label": {{"type": "string"}}}}, "required": ["label"]}}
    level: int = 7

    @property
    def tasks(self):
        return [Task(f"dot-{{i}}", reference={{"label": str(self.level)}}) for i in range(2)]

    def images(self, task):
        return [Image.new("L", (32, 32), {level})]

    def default_reward(self):
        return ExactMatchReward(field="label")

    def gold_answer(self, task):
        return {{"label": {gold}}}
'''


def write_dots(imports="", level="self.level", gold="str(self.level)"):
    """The source of an environment `Dots`."""
    return DOTS.format(imports=imports, level=level, gold=gold)


def leave_out_check(patch):
    """`publish` no longer checks the package in a fresh environment, which takes seconds."""
    patch.setattr("viewbox.publish.package.check_staged", lambda folder: [])


def check_only(patch, *rows):
    """`publish` checks these rows of the package, and those that they need."""
    patch.setattr("viewbox.publish.package.check_package", partial(check_package, rows=rows))


def list_contents(files):
    """Names and contents of files, and of those in the zip files among them."""
    for name, content in files.items():
        yield name, content
        if zipfile.is_zipfile(BytesIO(content)):
            with zipfile.ZipFile(BytesIO(content)) as packed:
                yield from list_contents({f"{name}/{member}": packed.read(member) for member in packed.namelist()})
