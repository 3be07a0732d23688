"""Refuses a reward that reads a field which no answer has: it would be 0 for every episode, without a word."""

from collections.abc import Iterable, Iterator
from typing import Any

from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.errors import ConfigError, describe_unknown
from viewbox.records import Episode
from viewbox.rewards.remote import iter_rewards

MAX_NAMES = 1000  # of fields that are kept for the message


def check_reward_fields(reward: Any, episodes: Iterable[Episode], env: BaseMultiTurnEnv | None = None) -> None:
    """Raise `ConfigError` if a reward reads a field that no answer of these episodes has.

    Episodes are read until each field was found; without any answer, nothing is refused.

    Args:
        reward: any reward.
        episodes: those that will be scored.
        env: an environment whose answers may have the fields that its schema lists.

    >>> from viewbox.records import Task
    >>> from viewbox.rewards import ExactMatchReward
    >>> check_reward_fields(ExactMatchReward("lable"), [Episode(Task("t"), answer={"label": 1})])
    Traceback (most recent call last):
    viewbox.errors.ConfigError: reward: reads a field that no answer of these episodes has: unknown answer field \
'lable'; allowed: label (did you mean 'label'?)
    """
    schema = getattr(env, "answer_schema", None)
    found: set[str] = set(schema.get("properties", ())) if isinstance(schema, dict) else set()
    missing = {first: field for field in _list_fields(reward) if (first := _get_first(field)) and first not in found}
    answers = 0
    for episode in episodes if missing else ():
        if episode.answer is None:
            continue
        answers += 1
        if len(found) < MAX_NAMES:
            found.update(episode.answer)
        missing = {first: field for first, field in missing.items() if first not in episode.answer}
        if not missing:
            return
    if missing and answers:
        field = next(iter(missing.values()))
        raise ConfigError(
            "reward: reads a field that no answer of these episodes has: "
            + describe_unknown("answer field", field, found),
            key="reward",
            given=field,
            allowed=sorted(found),
        )


def _list_fields(reward: Any) -> Iterator[str]:
    for one in iter_rewards(reward):
        field = getattr(one, "field", None)
        if isinstance(field, str) and type(one).__module__.startswith("viewbox.rewards."):
            yield field


def _get_first(field: str) -> str:
    """The field of the answer that a path begins with.

    >>> _get_first("findings[].box"), _get_first("size.mm")
    ('findings', 'size')
    """
    return field.partition(".")[0].partition("[")[0]
