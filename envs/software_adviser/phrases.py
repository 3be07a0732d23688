"""How users speak of tasks, kinds of pictures, limits and files: laymen and experts, in train and in test.

The two splits share no sentence and no layman's phrase. Experts use the field's own terms, which are the same in both.
`phrases.yaml` holds them, and `facts.yaml` what is known of formats, licenses and codes.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from ...configs import yaml_reader
from ...utils.frozen import freeze
from ..drawn import Split

Level = Literal["layman", "expert"]
Constraint = Literal["permissive license", "free license", "no GPU", "demo", "made for it"]
HiddenKind = Literal["task", "dimensions", "format", "structure"]
PicturedKind = Literal["modality", "structure"]
LEVELS: tuple[Level, ...] = get_args(Level)
CONSTRAINTS: tuple[Constraint, ...] = get_args(Constraint)
HIDDEN_KINDS: tuple[HiddenKind, ...] = get_args(HiddenKind)
Phrases = Mapping[str, Mapping[Split, tuple[str, ...]]]
Foreign = Mapping[Split, tuple[tuple[str, str], ...]]  # what is said, and the name
Frames = Mapping[Level, Mapping[Split, tuple[str, ...]]]
_TABLES: Any = freeze(yaml_reader.read_shipped(__package__, "phrases.yaml"))
TASKS: Phrases = _TABLES["tasks"]
MODALITIES: Phrases = _TABLES["modalities"]
FOREIGN_TASKS: Foreign = _TABLES["foreign_tasks"]
FOREIGN_MODALITIES: Foreign = _TABLES["foreign_modalities"]
BROKEN_FILES: Mapping[Split, tuple[str, ...]] = _TABLES["broken_files"]
CONSTRAINT_WORDS: Mapping[Constraint, Frames] = _TABLES["constraints"]
EXCLUSION_WORDS: Frames = _TABLES["exclusions"]
ASKED: Frames = _TABLES["asked"]
VAGUE: Frames = _TABLES["vague"]
UNSEEN: Frames = _TABLES["unseen"]
UNSEEN_VAGUE: Frames = _TABLES["unseen_vague"]
FILED: Frames = _TABLES["filed"]
ABOUT: Frames = _TABLES["about"]
FOLLOW_UPS: Mapping[str, Frames] = _TABLES["follow_ups"]
KNOWN: Any = freeze(yaml_reader.read_shipped(__package__, "facts.yaml"))
QUESTIONS: Mapping[HiddenKind, str] = KNOWN["questions"]
ANSWERS: Mapping[str, str] = KNOWN["answers"]
