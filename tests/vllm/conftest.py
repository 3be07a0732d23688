"""A real vLLM server on this machine's processor, with the shipped model. `make test-vllm` runs these tests."""

import pytest

pytest.importorskip("vllm")

from vllm.model_executor.models import registry

from tests.support.model_fixtures import measure_mismatch, plain_logps  # noqa: F401
from tests.support.vllm_process import VLLMProcess
from viewbox.assets import resolve_model_path


@pytest.fixture(autouse=True, scope="session")
def inspect_models_here():
    """vLLM starts a process to look at each class of models, lest it begins CUDA; here are none of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_run_in_subprocess", lambda look: look())
        yield


@pytest.fixture(scope="session")
def start_server(tmp_path_factory):
    """Starts servers, and ends them with the tests."""
    started = []

    def start(*flags):
        log = tmp_path_factory.mktemp("vllm") / "server.log"
        started.append(VLLMProcess(resolve_model_path("package:tiny_viewer"), log, *flags))
        return started[-1].start().wait()

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def server(start_server):
    """One server for all tests that leave it as it is."""
    return start_server()
