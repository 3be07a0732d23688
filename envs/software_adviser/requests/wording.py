"""Writes a request down: a frame of its level and split, filled with phrases; and the sentences of hidden facts.

The frames of `ASKED` say what is to be done, those of `VAGUE` do not; the splits share none.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....utils.frozen import FrozenDict
from . import words
from .request import Request
from .words import HiddenKind, Level, Split


def write_words(request: Request, rng: np.random.Generator) -> str:
    """The user's words: the task, unless it is hidden, the modality, the constraints, and what is not wanted."""
    level, split = request.level, request.split
    frames = VAGUE if "task" in request.hidden else ASKED
    extra = [_pick(rng, words.CONSTRAINT_WORDS[one][level][split]) for one in request.constraints]
    if request.exclude:
        extra.append(_pick(rng, words.EXCLUSION_WORDS[level][split]).format(names=join_names(request.exclude)))
    filled = _pick(rng, frames[level][split]).format(
        task=request.task,
        do=_say_task(request, rng),
        modality=request.modality,
        picture=_say_modality(request, rng),
        extra="".join(f" {sentence}" for sentence in extra),
    )
    text: str = filled[0].upper() + filled[1:]
    return text


def write_hidden_fact(request: Request, kind: HiddenKind) -> str:
    """The sentence with which the user tells a hidden fact; its first words are those of a question for it."""
    if kind == "task":
        task = request.task
        if request.level == "layman":
            task = f"{words.TASKS[task][request.split][0]} ({task})"
        return f"My task, goal and aim, what I want to do: {task}."
    if kind == "dimensions":
        return f"The dimensions (stack, volume, slices, film, frames, time series): {request.dimensions}."
    return f"The format (type of file, ending, extension): {request.format}."


def join_names(names: tuple[str, ...]) -> str:
    """Names as a list in words.

    >>> join_names(("A", "B", "C"))
    'A, B or C'
    """
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _say_task(request: Request, rng: np.random.Generator) -> str:
    phrases = words.TASKS.get(request.task)
    if phrases is not None:
        return str(_pick(rng, phrases[request.split]))
    return _find_foreign(words.FOREIGN_TASKS[request.split], request.task)


def _say_modality(request: Request, rng: np.random.Generator) -> str:
    phrases = words.MODALITIES.get(request.modality)
    if phrases is not None:
        return str(_pick(rng, phrases[request.split]))
    return _find_foreign(words.FOREIGN_MODALITIES[request.split], request.modality)


def _find_foreign(pairs: tuple[tuple[str, str], ...], term: str) -> str:
    """The layman's phrase of a foreign term."""
    return next(phrase for phrase, name in pairs if name == term)


def _pick(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


Frames = Mapping[Level, Mapping[Split, tuple[str, ...]]]

ASKED: Frames = FrozenDict(
    {
        "layman": {
            "train": (
                "I have {picture}. I want to {do}. Which program can help me?{extra}",
                "Hello, I am no specialist. I have {picture}, and my task is to {do}.{extra} What do I install?",
                "For my thesis I need to {do}. The material: {picture}.{extra}",
                "How can I {do}? It is about {picture}.{extra}",
            ),
            "test": (
                "Could you point me to some software? I got {picture} and hope to {do}.{extra}",
                "My boss gave me {picture} and asked me to {do}.{extra} Any advice?",
                "Is there a tool with which one can {do}? We deal with {picture}.{extra}",
            ),
        },
        "expert": {
            "train": (
                "Software for {task} of {modality} data?{extra}",
                "We need {task} on {modality} images.{extra} Recommendations?",
                "Task: {task}. Modality: {modality}.{extra}",
            ),
            "test": (
                "Looking for a package that does {task}; the input is {modality}.{extra}",
                "Which implementation of {task} would you pick for {modality}?{extra}",
            ),
        },
    }
)
VAGUE: Frames = FrozenDict(
    {
        "layman": {
            "train": (
                "I have {picture}. Which program can help me?{extra}",
                "Hello, I am no specialist. I have {picture}.{extra} What do I install?",
                "For my thesis I work with {picture}. What should I use?{extra}",
            ),
            "test": (
                "Could you point me to some software? I got {picture}.{extra}",
                "My boss gave me {picture}.{extra} Any advice?",
            ),
        },
        "expert": {
            "train": ("Software for {modality} data?{extra}", "Modality: {modality}.{extra} Recommendations?"),
            "test": (
                "Looking for a package; the input is {modality}.{extra}",
                "What would you use for {modality}?{extra}",
            ),
        },
    }
)
