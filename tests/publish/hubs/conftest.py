"""A loopback hub that the real client talks to, in the place of the real one."""

import pytest

from tests.support.hf_hub import HfHub
from tests.support.hub_server import serve_hub
from tests.support.publishing import write_dots

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
def whole(monkeypatch, unchecked):
    """Neither the check before, which takes seconds, nor the fresh environment afterwards, which takes a minute."""
    monkeypatch.setattr("viewbox.publish.release.install_and_open", lambda *given: "not installed")
