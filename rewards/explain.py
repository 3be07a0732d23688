"""Why an answer got its score, in words: what the workbench prints beside every component."""

from collections.abc import Mapping
from typing import Any

from viewbox.rewards.combined import CombinedReward, unmet


def explained(reward: Any, answer: Mapping[str, Any] | None, reference: Mapping[str, Any], episode: Any = None) -> str:
    """One or two sentences: the reward's own (`explain`, `explain_episode`), or what it gave. Never raises.

    >>> from viewbox.rewards import ExactMatchReward
    >>> explained(ExactMatchReward("label"), {"label": "No tumour"}, {"label": "tumour"})
    "label: 'No tumour' is not 'tumour'"
    >>> explained(lambda answer, reference: 0.5, {}, {})
    'gives 0.5'
    """
    try:
        if isinstance(reward, CombinedReward):
            total, _ = reward.score(answer, reference, episode)
            return "does not apply" if total is None else f"the weighted mean of its parts, {total:.3g}"
        of_episode = getattr(reward, "of_episode", None)
        if of_episode is not None and episode is None:
            return "does not apply: it reads a whole episode"
        own = getattr(reward, "explain" if of_episode is None else "explain_episode", None)
        if own is not None:
            return str(own(answer, reference) if of_episode is None else own(episode))
        given = reward(answer, reference) if of_episode is None else of_episode(episode)
        return "does not apply" if given is None else f"gives {given!r:.80}"
    except Exception as error:  # a reward written elsewhere may fail, and this says so
        return f"failed: {type(error).__name__}: {error}"


def explanations(
    reward: CombinedReward, answer: Mapping[str, Any] | None, reference: Mapping[str, Any], episode: Any = None
) -> dict[str, str]:
    """Every component's sentence by its name, as `CombinedReward.score` lists them; a part that is out says why.

    >>> from viewbox.rewards import ExactMatchReward, IoUReward, Part
    >>> box = Part(IoUReward("bbox"), 0.5, needs={"label": 1.0})
    >>> reward = CombinedReward({"label": (ExactMatchReward("label"), 0.5), "box": box})
    >>> explanations(reward, {"label": "six"}, {"label": "seven"})
    {'label': "label: 'six' is not 'seven'", 'box': 'counts 0: label is 0, needed: 1'}
    """
    _, scores = reward.score(answer, reference, episode)
    found: dict[str, str] = {}
    for name, part in reward.components.items():
        missing = unmet(part, scores)
        if missing is None:
            found[name] = explained(part.reward, answer, reference, episode)
        elif (value := scores[missing]) is None:
            found[name] = f"does not apply, since {missing} does not"
        else:
            found[name] = f"counts 0: {missing} is {value:.3g}, needed: {part.needs[missing]:g}"
        if missing is None and isinstance(part.reward, CombinedReward):
            inner = explanations(part.reward, answer, reference, episode)
            found.update({f"{name}.{one}": words for one, words in inner.items()})
    return found
