"""A user's request: what is said, what is known of the file, and what only a question brings to light."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from ....utils.frozen import FrozenDict
from ...consultation.hidden_facts import find_facts
from .words import Constraint, HiddenKind, Level, Split

Status = Literal["answerable", "ambiguous", "unanswerable"]
Reason = Literal["no_suitable_tool", "no_modality_match", "no_task_match", "no_dimension_match", "invalid_files"]
STATUSES: tuple[Status, ...] = get_args(Status)
REASONS: tuple[Reason, ...] = get_args(Reason)
UNKNOWN = "not known"
NO_ANSWER = "I do not know."


@dataclass(frozen=True)
class Request:
    """A request and the facts behind it.

    Args:
        words: of the user.
        level: whose words they are.
        task, modality, dimensions: in the catalogue's words; a task or modality that no catalogue has is possible.
        format: of the file; empty if it is no image that can be read.
        constraints: what else the software must fulfill.
        exclude: names of software that the user does not want.
        hidden: sentences with the facts that neither the words nor `metadata` say, by kind.
        status: whether there is an answer, and whether it takes a question back.
        reason: why there is none; None if there is one.
        metadata: what is known of the file: format, dimensions, size, voxel size.
        seed, split: from which it was made.
        withheld: names of suitable software of the other split, which searches of this task leave out.
    """

    words: str
    level: Level
    task: str
    modality: str
    dimensions: str
    format: str
    constraints: tuple[Constraint, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: Mapping[HiddenKind, str] = field(default_factory=FrozenDict)
    status: Status = "answerable"
    reason: Reason | None = None
    metadata: Mapping[str, str] = field(default_factory=FrozenDict)
    seed: int = 0
    split: Split = "train"
    withheld: tuple[str, ...] = ()

    @property
    def known_formats(self) -> tuple[str, ...]:
        """The format, if the file tells it: what the environment fills in when a tool searches."""
        return (self.format,) if self.format and "format" not in self.hidden else ()

    def write_facts(self) -> str:
        """What the user knows, a sentence for each fact: those already said, and then the hidden ones.

        >>> request = Request("", "expert", "denoising", "CT", "3D", "DICOM", hidden={"format": "Type: DICOM."})
        >>> print(request.write_facts())
        The pictures (modality, kind of image, machine, scan) are: CT.
        I have no other wishes (license, graphics card, GPU, demo, cost, hardware) than those I have told.
        I do not mind which organ, body part, cell or structure the software is made for.
        Type: DICOM.
        """
        said = (
            f"The pictures (modality, kind of image, machine, scan) are: {self.modality}.",
            "I have no other wishes (license, graphics card, GPU, demo, cost, hardware) than those I have told.",
            "I do not mind which organ, body part, cell or structure the software is made for.",
        )
        return "\n".join((*said, *self.hidden.values()))


def answer_question(facts: str, question: str) -> str:
    """What the user says to a question: the facts that share words with it, as the patient of `consultation` does.

    >>> facts = "My task and goal, what I want to do: denoising.\\nThe file type (format): CZI."
    >>> answer_question(facts, "Which format do your files have?"), answer_question(facts, "How old are you?")
    ('The file type (format): CZI.', 'I do not know.')
    """
    return find_facts(facts, question) or NO_ANSWER
