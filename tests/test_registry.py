"""Another package adds environments, rewards, specialists and credits by entry points."""

import sys

import pytest

import viewbox
from viewbox import registry
from viewbox.errors import ConfigError
from viewbox.rewards import build
from viewbox.rewards.declare import REWARD_TYPES
from viewbox.rollouts.scoring.saved_run import SavedRun, make_environment
from viewbox.tools.specialists import get_specialist_class
from viewbox.tools.specialists.spec import SPECIALISTS
from viewbox.training.grpo.credit import build_credit

CODE = """
import viewbox
from viewbox.rewards.declare import register_reward
from viewbox.tools.specialists import Specialist, register_specialist

class Spots(viewbox.BaseMultiTurnEnv):
    name = "spots"
    tasks = (viewbox.Task("one"),)
    def default_reward(self):
        return lambda answer, reference: 1.0

@register_reward("spotted")
class Spotted:
    name: str = "spotted"
    def __call__(self, answer, reference):
        return 0.5

@register_specialist("spotter")
class Spotter(Specialist):
    pass

class Spotless:
    def __init__(self, scale):
        self.scale = scale
"""
ENTRIES = """
[viewbox.environments]
spots = spots_of_others:Spots
digits = spots_of_others:Spots
[viewbox.credits]
spotless = spots_of_others:Spotless
[viewbox.rewards]
spotted = spots_of_others
[viewbox.specialists]
spotter = spots_of_others
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package of somebody else, as pip installs it."""
    about = tmp_path / "spots_of_others-1.0.dist-info"
    about.mkdir()
    (tmp_path / "spots_of_others.py").write_text(CODE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: spots-of-others\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    registry._read_entry_points.cache_clear()
    yield
    registry._read_entry_points.cache_clear()
    sys.modules.pop("spots_of_others", None)
    REWARD_TYPES.pop("spotted", None)  # a page of all settings, and a message, would name them
    SPECIALISTS.pop("spotter", None)


def test_names_of_an_installed_package_stand_in_configs_and_a_name_of_viewbox_stays_its_own(installed):
    assert viewbox.make("spots").tasks[0].id == "one"
    assert build({"type": "spotted"})(None, {}) == 0.5
    assert get_specialist_class("spotter").__name__ == "Spotter"
    assert build_credit("spotless", "none").scale == "none"
    assert "spots" in registry.list_plugins("environments")
    with pytest.raises(ConfigError, match=r"allowed: .*spots.* \(did you mean 'spots'\?\)"):
        viewbox.make("spot")
    assert type(viewbox.make("digits")).__module__ == "viewbox.envs.digits.env"


def test_the_files_of_a_run_run_no_other_package_and_an_episode_of_one_is_sent_nowhere_unless_its_data_may_be(
    installed, tmp_path
):
    with pytest.raises(ConfigError, match=r"env.name = 'spots'; allowed in a run's own files: chest_xray, .*--env"):
        make_environment("spots", {}, "config.yaml")
    assert make_environment("spots", {}, "--env", is_yours=True).name == "spots"
    (tmp_path / "config.yaml").write_text("env: {name: digits}\n")
    episode = viewbox.Episode(viewbox.Task("one"), environment="spots")
    with pytest.raises(ConfigError, match="its environment spots is none of viewbox, so its data may be restricted"):
        SavedRun(tmp_path, tmp_path).check_sending(episode, "https://judge.example/v1")
    SavedRun(tmp_path, tmp_path, env="spots").check_sending(episode, "https://judge.example/v1")


def test_every_name_of_the_tables_is_registered_by_its_module():
    for group in registry.TABLES:
        for name in registry.TABLES[group]:
            registry.import_plugin(group, name)
    assert registry.find_plugin("environments", "no such name") is None
