"""The shipped model's config, exported; verl's own worker, built from what was exported; and a stub of its server."""

import os

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

pytest.importorskip("verl")

from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

from tests.support.verl.server import StubServer, compose_trainer
from viewbox.integrations.verl.export import export_verl

OVERRIDES = ["env.max_turns=4", "env.max_malformed=2", "rollout.max_reply_tokens=400", "log.eval_tasks=6"]


@pytest.fixture(scope="session")
def export(tmp_path_factory):
    """Exports the quickstart with overrides, and returns the folder."""

    def write(*overrides):
        folder = tmp_path_factory.mktemp("export") / "run"
        export_verl("quickstart", folder, [*OVERRIDES, *overrides])
        return folder

    return write


@pytest.fixture(scope="session")
def exported(export):
    return export()


@pytest.fixture(scope="session")
def config(exported):
    return compose_trainer(exported)


@pytest.fixture(scope="session")
def server(exported):
    return StubServer(exported / "model")


@pytest.fixture(scope="session")
def worker(config, server):
    """verl's worker, made by its own constructor."""
    return AgentLoopWorker(config, server)
