"""Sentence frames in which a user asks, by level and split; the splits share none.

The frames of `ASKED` say what is to be done, those of `VAGUE` do not.
"""

from collections.abc import Mapping

from viewbox.envs.software_adviser.requests.words import Level, Split
from viewbox.frozen import FrozenDict

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
