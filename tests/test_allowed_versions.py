"""`make test-versions` finds a name that the installed versions lack, wherever the package uses it."""

import sys

import pytest

from tests.support import allowed_versions, used_names

TRY = "try:\n    from numpy import absent\nexcept {error}:\n    absent = None\n"
# What a module holds, and what is missing. numpy stands for every library
PLANTED = [
    ("from numpy import absent\n", "ImportError"), ("def play():\n    from numpy import absent\n", "2: numpy.absent"),
    ("def play():\n    import numpy.absent\n", "2: numpy.absent"),
    ("import numpy as np\nTYPES = {np.int8: 1, np.absent: 2}\n", "2: AttributeError"),
    ("import numpy as np\nclass A:\n    async def play(self):\n        return np.linalg.absent(1)\n",
     "4: numpy.linalg.absent"),
    ("from numpy import ndarray\nplay = lambda: ndarray.absent\n", "2: numpy.ndarray.absent"),
    ("import numpy.linalg\ndef play():\n    class A(numpy.linalg.Absent): ...\n", "3: numpy.linalg.Absent"),
    ('from numpy import ndarray\n\nPRIVATE_NAMES = ("ndarray._absent",)\n', "3: numpy.ndarray._absent"),
    ("def play():\n    try:\n        from numpy import absent\n    except ValueError:\n        pass\n",
     "3: numpy.absent"),
    # where an ImportError is caught, and for type checkers; arguments and variables that have a module's name
    (TRY.format(error="ImportError") + "def play():\n    absent.more\n", None),
    (TRY.format(error="(ValueError, ImportError)"), None),
    ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from numpy import absent\n", None),
    ("import numpy as np\ndef play(np):\n    return np.absent\n", None),
    ("import numpy as np\ndef play():\n    np = 'a'\n    return np.absent\n", None),
    ("import numpy as np\ndef play():\n    np.absent = 1\n", None),
    # a library that is not installed, or of another environment
    ("def play():\n    from absent_library import a\n", None),
    ("import absent_library\nfrom numpy import absent\n", None),
    ("def play():\n    import pydantic\n    pydantic.absent\n", None),
]  # fmt: skip


@pytest.fixture
def look(tmp_path, monkeypatch):
    """Checks a package that holds one module, after an import that is right."""
    monkeypatch.syspath_prepend(tmp_path)

    def look(source, doors=(), **given):
        root = tmp_path / "planted"
        (root / "room").mkdir(parents=True)
        files = {"planted": "", "planted.room": "", "planted.room.play": source}
        files |= {"planted.other": "from .room import play"}
        paths = {name: root.parent.joinpath(*name.split(".")) for name in files}
        paths = {
            name: path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for name, path in paths.items()
        }
        for name, path in paths.items():
            path.write_text(files[name])
        return used_names.check(root, paths, doors, without=["pydantic"], **given)

    yield look
    for name in [name for name in sys.modules if name.partition(".")[0] == "planted"]:
        del sys.modules[name]


@pytest.mark.parametrize(("source", "lack"), PLANTED)
def test_a_name_that_the_installed_version_lacks_is_found(look, source, lack):
    _, _, missing = look(source)
    assert bool(missing) == (lack is not None), missing
    assert lack is None or lack in missing[0]
    assert all(line.startswith("room/play.py:") for line in missing)


def test_a_door_must_be_importable_whatever_is_installed(look):
    source = "import absent_library\n"
    assert look(source, ["planted.other"])[2] == [
        "room/play.py:1: ModuleNotFoundError: No module named 'absent_library'"
    ]


def test_modules_that_use_the_libraries_asked_for_are_checked_with_all_that_they_load(look):
    modules, names, missing = look("import httpx\nfrom numpy import absent_too\n", libraries=["httpx"])
    assert (modules, names) == (3, 2)  # `other` is not looked at
    assert [line.split(":")[0] for line in missing] == ["room/play.py"] * 2


PRIME = """#!{python}
import sys
shown = {{"push": "--path --owner --plain", "version list": "--plain --{more}"}}
print(shown[" ".join(sys.argv[2:-1])])
"""


@pytest.mark.parametrize(
    ("typed", "more", "lacks"),
    [
        ('"version", "list", self.place, "--all"', "all", []),
        ('"version", "list", self.place, "--all"', "allow", ["prime.py:2: prime env version list --all"]),
        ('"push", "--path", str(folder), "--owner", self.owner', "", []),
        ('"push", "--path", str(folder), "--visibility", self.seen', "", ["prime.py:2: prime env push --visibility"]),
        ('"pull", f"{self.place}@1"', "", ["prime.py:2: prime env pull"]),
    ],
)
def test_an_option_that_the_help_of_prime_does_not_name_is_found(tmp_path, typed, more, lacks):
    command, source = tmp_path / "prime", tmp_path / "prime.py"
    command.write_text(PRIME.format(python=sys.executable, more=more))
    command.chmod(0o755)
    source.write_text(f"def push(self):\n    self._run({typed})\n")
    _, count, missing = allowed_versions.check_options(command, source)
    assert count >= 2
    assert [line[: len(lack)] for line, lack in zip(missing, lacks, strict=True)] == lacks


def test_every_extra_of_users_has_doors_and_every_adapter_is_one():
    files = used_names.list_files(allowed_versions.ROOT)
    doors = {door for some in allowed_versions.DOORS.values() for door in some}
    adapters = {
        name
        for name in files
        if name.startswith("viewbox.integrations.") and any(used_names.Reader(name, files[name]).uses)
    }
    assert doors <= files.keys()
    assert adapters <= doors, adapters - doors
    assert allowed_versions.EXTRAS.keys() - allowed_versions.DOORS.keys() == {"qlora", "dev", "docs", "all"}
