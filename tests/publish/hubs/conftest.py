"""A loopback hub that the real client talks to, in the place of the real one."""

import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.clean_python import link_libraries
from tests.support.hf_hub import KEY, hf  # noqa: F401
from tests.support.publishing import write_dots
from viewbox.publish import release


@pytest.fixture
def spots(tmp_path):
    """An environment in a file."""
    (tmp_path / "spots.py").write_text(write_dots())
    return f"{tmp_path}/spots.py:Dots"


@pytest.fixture
def dots(spots, whole):
    """The same, sent without what takes long."""
    return spots


@pytest.fixture
def linked(monkeypatch, tmp_path):
    """A fresh environment finds what is installed here, but viewbox; an index would take a minute or more."""
    libraries, install = link_libraries(tmp_path), release.install_and_open

    class Linked(venv.EnvBuilder):
        def __init__(self, with_pip, **more):
            super().__init__(**more, with_pip=with_pip and find_spec("pip") is None)  # to unpack pip takes seconds

        def post_setup(self, context):
            [site] = Path(context.env_dir).glob("lib/python*/site-packages")
            (site / "here.pth").write_text(f"{libraries}\n")
            script = Path(context.bin_path, "pip")
            if not script.exists():
                code = "from pip._internal.cli.main import main\nraise SystemExit(main())\n"
                script.write_text(f"#!{context.env_exe}\n{code}")
                script.chmod(0o755)

    def install_alone(*given):
        monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # which means that there is none
        return install(*given)

    monkeypatch.setattr(venv, "EnvBuilder", Linked)
    monkeypatch.setattr(release, "install_and_open", install_alone)


@pytest.fixture
def whole(monkeypatch, unchecked):
    """Neither the check before, which takes seconds, nor the fresh environment afterwards, which takes a minute."""
    monkeypatch.setattr("viewbox.publish.release.install_and_open", lambda *given: "not installed")
