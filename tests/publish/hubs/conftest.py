"""A loopback hub that the real client talks to, in the place of the real one."""

import venv
from pathlib import Path

import pytest

from tests.support.clean_python import link_libraries
from tests.support.hf_hub import HfHub
from tests.support.hub_server import serve_hub
from tests.support.publishing import write_dots
from viewbox.publish import release

KEY = "hf_" + "Secret0" * 5


@pytest.fixture
def hf(monkeypatch, tmp_path):
    """The client reads its address when it is imported; where it is kept is told to each call."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import constants

    with serve_hub(HfHub()) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        pattern = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", pattern)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("viewbox.publish.hubs.hf.WAIT", 0.01)
        monkeypatch.setenv("HF_TOKEN", KEY)
        yield hub


@pytest.fixture
def dots(tmp_path):
    """An environment in a file."""
    (tmp_path / "spots.py").write_text(write_dots())
    return f"{tmp_path}/spots.py:Dots"


@pytest.fixture
def linked(monkeypatch, tmp_path):
    """A fresh environment finds what is installed here, but viewbox; an index would take a minute or more."""
    libraries, install = link_libraries(tmp_path), release.install_and_open

    class Linked(venv.EnvBuilder):
        def post_setup(self, context):
            [site] = Path(context.env_dir).glob("lib/python*/site-packages")
            (site / "here.pth").write_text(f"{libraries}\n")

    def install_alone(*given):
        monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # which means that there is none
        return install(*given)

    monkeypatch.setattr(venv, "EnvBuilder", Linked)
    monkeypatch.setattr(release, "install_and_open", install_alone)


@pytest.fixture
def whole(monkeypatch, unchecked):
    """Neither the check before, which takes seconds, nor the fresh environment afterwards, which takes a minute."""
    monkeypatch.setattr("viewbox.publish.release.install_and_open", lambda *given: "not installed")
