"""Rewards that call another service, such as a judge: functions that find what they declare, at any depth.

A reward that waits for a network sets `blocking = True`: it must not run on an event loop, and several answers may be
scored at once. `remote` is the address that it sends data to, and `take_counts` returns what it counted since the last
call. All three are optional; a reward without them is a pure function.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ..network.data_policy import HasData, check_may_leave

THREADS = 8  # for a blocking reward without `concurrency`


def iter_rewards(reward: object) -> Iterator[Any]:
    """Yield the rewards inside combined rewards, at any depth; any other reward itself.

    >>> from viewbox.rewards import CombinedReward, ExactMatchReward
    >>> inner = CombinedReward({"label": (ExactMatchReward("label"), 1.0)})
    >>> [one.field for one in iter_rewards(CombinedReward({"inner": (inner, 1.0)}))]
    ['label']
    """
    parts = getattr(reward, "components", None)
    if isinstance(parts, Mapping):
        for component in parts.values():
            yield from iter_rewards(component[0] if isinstance(component, tuple) else component.reward)
        return
    inner = getattr(reward, "of", None)  # the reward that tells `BrierReward` what is right
    if inner is not None:
        yield from iter_rewards(inner)
    function = getattr(reward, "function", reward)  # a reward by import path that got another name
    yield getattr(function, "__self__", function)


def count_threads(reward: object) -> int:
    """Return how many episodes to score at once: 1, unless a reward inside is blocking.

    >>> from viewbox.rewards import ExactMatchReward
    >>> count_threads(ExactMatchReward())
    1
    """
    blocking = [inner for inner in iter_rewards(reward) if getattr(inner, "blocking", False) is True]
    return sum(getattr(inner, "concurrency", THREADS) for inner in blocking) or 1


def is_blocking(reward: object) -> bool:
    """Return whether a reward inside waits for a network; then it must not be called on an event loop.

    >>> from viewbox.rewards import ExactMatchReward
    >>> is_blocking(ExactMatchReward())
    False
    """
    return any(getattr(inner, "blocking", False) is True for inner in iter_rewards(reward))


def find_remote_address(reward: object) -> str | None:
    """Return the first address outside this machine that a reward inside sends answers to, or None."""
    addresses = (getattr(inner, "remote", None) for inner in iter_rewards(reward))
    return next((address for address in addresses if isinstance(address, str)), None)


def check_reward_may_ask(env: HasData, reward: object) -> None:
    """Raise `ConfigError` if a reward would send data of this restricted environment to another machine."""
    address = find_remote_address(reward)
    check_may_leave(env, address, action="its reward sends answers to", allowed="a judge on localhost", key="reward")


def take_counts(reward: object) -> dict[str, float]:
    """Return the sums of what the rewards inside counted since the last call (`judge/calls`, …); {} for pure functions.

    >>> from viewbox.rewards import ExactMatchReward
    >>> take_counts(ExactMatchReward())
    {}
    """
    total: Counter[str] = Counter()
    for inner in iter_rewards(reward):
        take = getattr(inner, "take_counts", None)
        for name, count in (take() if callable(take) else {}).items():
            total[name] += count
    return {name: float(count) for name, count in total.items()}
