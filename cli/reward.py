"""`viewbox reward try`: tries a reward on an answer from the command line or of a saved episode."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..errors import ConfigError, StoreError
from ..utils.files import read_regular

if TYPE_CHECKING:
    from ..records import Episode
    from ..rewards.explain import ExplainedScore

_ALLOWED = "allowed: a JSON object, or @file.json"


def try_reward(
    reward: str,
    *,
    answer: str | None = None,
    reference: str | None = None,
    episode: str | None = None,
    ask_judge: bool = False,
) -> "ExplainedScore":
    """Print the score of one answer: every component, and why.

    Args:
        reward: reward: a YAML file (also a run's; without `reward`, that of its environment), module:name or
            file.py:name.
        answer: answer as a JSON object or @file.json; null: no answer.
        reference: reference of the task as a JSON object or @file.json.
        episode: a saved episode instead, as RUN#LINE: a run and a line in it, from 1. Its own answer and reference are
            used unless they are given as well.
        ask_judge: ask the judge that a YAML file in a run's folder names.

    Raises:
        ConfigError, StoreError: an argument is missing, cannot be read or is not allowed.
    """
    from ..rewards.explain import explain_score
    from ..rollouts.scoring.saved_run import find_reward

    source = find_reward(reward, ask_judge=ask_judge)
    if episode is not None:
        saved = _load_episode(episode, source.reward)
        if answer is not None:
            saved = replace(saved, answer=_parse_object("answer", answer))
        if reference is not None:
            saved = replace(saved, task=replace(saved.task, reference=_parse_reference(reference)))
        return explain_score(source.reward, saved.answer, saved.task.reference, saved)
    if answer is None or reference is None:
        both = {"answer": answer, "reference": reference}
        missing = " and ".join(f"--{name}" for name, text in both.items() if text is None)
        raise ConfigError(f"{missing}: missing; give --answer and --reference, or --episode RUN#LINE")
    return explain_score(source.reward, _parse_object("answer", answer), _parse_reference(reference))


def _parse_reference(text: str) -> dict[str, Any]:
    value = _parse_object("reference", text)
    if value is None:
        raise ConfigError(f"--reference is null; {_ALLOWED}")
    return value


def _parse_object(option: str, text: str) -> dict[str, Any] | None:
    """Return the JSON object of an option, or of the file it names; NaN and infinities can be tried too."""
    from ..core.parsing.json_text import build_object
    from ..rollouts.store.lines import MAX_LINE

    place = f"--{option}"
    if text.startswith("@"):
        place = f"{place} {text}"
        try:
            text = read_regular(text[1:], limit=MAX_LINE).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{place}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    try:
        value = json.loads(text, object_pairs_hook=build_object)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place} is {text[:80]!r}: not JSON: {error}; {_ALLOWED}") from error
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"{place} is {text[:80]!r}; {_ALLOWED}")
    return value


def _load_episode(place: str, reward: Any) -> "Episode":
    """Return the episode RUN#LINE, if the reward may see it."""
    from ..rewards.remote import find_remote_address
    from ..rollouts.scoring.saved_run import SavedRun
    from ..rollouts.store.layout import LINES
    from ..rollouts.store.reader import load

    run, _, line = place.rpartition("#")
    if not run or not line.isdecimal() or len(line) > 12 or int(line) < 1:
        raise ConfigError(f"--episode {place!r}; allowed: RUN#LINE, a run folder and a line of its episodes, from 1")
    episodes = load(run, errors="skip")
    for episode in episodes:
        if episodes.line == int(line):
            SavedRun(Path(run), episodes.folder).check_sending(episode, find_remote_address(reward))
            return episode
        if episodes.line > int(line):
            break
    why = episodes.unreadable.get(int(line), f"there is no episode in this line; allowed: 1 to {episodes.line}")
    raise StoreError(f"{episodes.folder / LINES}, line {line}: {why}")
