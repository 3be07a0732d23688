"""`make test-versions` finds a name that the installed versions lack, wherever the package uses it."""

import sys

import pytest

from tests.support import allowed_versions, used_names

# What a module holds, and what is missing. numpy stands for every library
PLANTED = [
    ("def play():\n    from numpy import absent\n", "2: numpy.absent"),
    ("import numpy as np\nTYPES = {np.int8: 1, np.absent: 2}\n", "2: AttributeError"),
    ("import numpy as np\nclass A:\n    async def play(self):\n        return np.linalg.absent(1)\n",
     "4: numpy.linalg.absent"),
    ("from numpy import ndarray\nplay = lambda: ndarray.absent\n", "2: numpy.ndarray.absent"),
    ('from numpy import ndarray\n\nPRIVATE_NAMES = ("ndarray._absent",)\n', "3: numpy.ndarray._absent"),
    ("def play():\n    try:\n        from numpy import absent\n    except ValueError:\n        pass\n",
     "3: numpy.absent"),
    # where an ImportError is caught, and for type checkers; arguments and variables that have a module's name
    ("try:\n    from numpy import absent\nexcept ImportError:\n    absent = 1\ndef play():\n    absent.more\n", None),
    ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from numpy import absent\n", None),
    ("import numpy as np\ndef play(np):\n    return np.absent\n", None),
    # a library that is not installed, or of another environment
    ("def play():\n    from absent_library import a\n", None),
    ("def play():\n    import pydantic\n    pydantic.absent\n", None),
]  # fmt: skip


@pytest.fixture
def look(tmp_path, monkeypatch):
    """Checks a package that holds one module, after an import that is right."""
    monkeypatch.syspath_prepend(tmp_path)

    def look(source):
        (tmp_path / "planted" / "room").mkdir(parents=True)
        files = {"planted": "", "planted.room": "", "planted.room.play": source}
        paths = {name: tmp_path.joinpath(*name.split(".")) for name in files}
        for name, path in paths.items():
            paths[name] = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            paths[name].write_text(files[name])
        return used_names.check(tmp_path / "planted", paths, [], without=["pydantic"])

    yield look
    for name in [name for name in sys.modules if name.partition(".")[0] == "planted"]:
        del sys.modules[name]


@pytest.mark.parametrize(("source", "lack"), PLANTED)
def test_a_name_that_the_installed_version_lacks_is_found(look, source, lack):
    _, _, missing = look(source)
    assert bool(missing) == (lack is not None), missing
    assert lack is None or lack in missing[0]
    assert all(line.startswith("room/play.py:") for line in missing)


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
