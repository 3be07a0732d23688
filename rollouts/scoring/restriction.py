"""Says whether the data of a saved run may leave this machine: whatever sends, publishes or packs a run asks here.

Each episode says it (`info.restricted`), as its environment said when it was played: lines that are copied, merged,
exported and imported keep it. Where a line does not, the run's config decides, and without one the class of the
environment that the line names. What is unknown may be restricted.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from ...envs import load_class
from ...envs.data.env import DataEnv
from ...errors import StoreError
from ...network.data_policy import RESTRICTED
from ...records import Episode
from ...registry import ENVIRONMENTS, find_plugin
from ..store.layout import find_episodes_folder
from ..store.reader import load
from ..store.run_folder import list_held_out, read_config

MIXTURE = "mixture"  # an environment of environments
IS = "its data is restricted to this machine"
MAY_BE = "so its data may be restricted"
UNKNOWN = f'{MAY_BE} (episodes say if it is: info={{"{RESTRICTED}": False}}, or the name of a registered environment)'


def find_restriction(run: Path, episodes: Path) -> str | None:
    """Return why the data of a run must not leave this machine, or may not; None if it may.
    An episode says so, played in training or held out; or the config, in any of its parts. A part that cannot be read
    may be restricted, and so may what an environment holds that is not registered here."""
    path, config = read_config(run, episodes)
    section, run_name = config.get("env"), get_name(config)
    if section is not None and (why := find_in_section(section, f"{path}: env", run_name, classes=True)):
        return why
    is_known = run_name is not None
    for folder in (episodes, *list_held_out(run)):
        try:
            for episode in load(folder, errors="skip"):
                if why := find_in_episode(episode, run_name):
                    return why
                is_known = True
        except StoreError:  # none was stored
            continue
    return None if is_known else f"nothing says what data it holds, {UNKNOWN}"


def find_in_saved(episodes: str | None) -> str | None:
    """Return why what is learned from `train.episodes` must not leave; None if it may, or if they are no run."""
    saved = Path(episodes or "")
    return find_restriction(saved, find_episodes_folder(saved)) if episodes and saved.is_dir() else None


def get_name(config: Mapping[str, object]) -> str | None:
    """Return the name of the environment in a run's config, which without one mixes several; None: there is none."""
    section = config.get("env")
    if not isinstance(section, Mapping) or not section.keys() & {"name", "environments"}:
        return None
    return str(section.get("name", MIXTURE))


def find_in_episode(episode: Episode, own: str | None) -> str | None:
    """Return why the data of an episode is restricted, or may be; `own` is the environment of its run's config."""
    said, name = episode.info.get(RESTRICTED), episode.environment
    if said is not None and said is not False:
        return f"{IS} (info.{RESTRICTED} of the episode of task {episode.task.id!r:.80})"
    if said is False:  # as its class was then
        return _find_in_class(name, settled=True)
    if own is not None and (own in (MIXTURE, name) or not find_plugin("environments", name)):
        return None  # the config said it
    if name:
        return _find_in_class(name, may_differ=True)
    return f"the episode of task {episode.task.id!r:.80} names no environment, {UNKNOWN}"


def find_in_section(
    section: object, place: str, key: str | None, known: Collection[str] = (), *, classes: bool = False
) -> str | None:
    """Return why an environment's section is restricted, or may be; its `eval` and the parts of a mixture count.
    `key` is its name if it states none; None: it needs none, as it only changes another section, whose parts are
    `known`. `classes`: what the classes say that it names counts, too."""
    if not isinstance(section, Mapping):
        return f"{place} is no mapping, {MAY_BE}"
    data, parts = section.get("data", {}), section.get("environments", {})
    for key_, held in (("data", data), ("environments", parts)):
        if not isinstance(held, Mapping):
            return f"{place}.{key_} is no mapping, {MAY_BE}"
    if data.get(RESTRICTED):
        return f"{IS} ({place}.data.{RESTRICTED})"
    name = section.get("name", key)
    if classes and ("name" in section or key is not None):
        if not isinstance(name, str) or not name:
            return f"{place} names no environment, {MAY_BE}"
        if why := _find_in_class(name):
            return why
    for part_name, part in parts.items():
        inner = None if part_name in known else str(part_name)
        if why := find_in_section(part, f"{place}.environments.{part_name}", inner, classes=classes):
            return why
    changes = section.get("eval")
    return find_in_section(changes, f"{place}.eval", None, parts, classes=classes) if changes else None


def _find_in_class(name: str, *, may_differ: bool = False, settled: bool = False) -> str | None:
    """Return why the data of an environment is restricted, or may be.
    `may_differ` if its settings are not known; `settled` if only what the class itself declares counts."""
    if name not in ENVIRONMENTS:
        return None if settled else f"its environment {name:.100} is none of viewbox, {UNKNOWN}"
    declared = getattr(load_class(name), RESTRICTED, None)
    if declared is True:
        return f"the data of its environment {name} is restricted to this machine"
    if settled or declared is False or (declared is DataEnv.restricted and not may_differ):
        return None
    return f"nothing says which data its environment {name} had, {UNKNOWN}"
