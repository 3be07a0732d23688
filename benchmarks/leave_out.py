"""The engine without one of the four things that make it fast, for the split of its gain in `rollouts.py`.

Each is removed by using the engine, not by a setting: a prompt whose first words differ is not shared; a sequence whose
length is reset is computed again; a sequence may not start while others run; an image under a new name is encoded
again. Without all four, the engine does the work of the per-turn loop.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from looks import Looks, ScriptedEngine, Stage

from viewbox.records import Reply
from viewbox.rollouts.engine.scheduler import Scheduler
from viewbox.rollouts.engine.sequence import Sequence
from viewbox.rollouts.engine.vision_cache import VisionCache
from viewbox.rollouts.generator import Conversation


class ForgetsTurns(ScriptedEngine):
    """Keeps no keys and values between turns: the whole conversation is prefilled for every reply."""

    async def reply(self, conversation: Conversation) -> Reply:
        sequence = self.sequences[conversation]
        if conversation.record.completion_ids:
            sequence.length, sequence.position, sequence.prompt, sequence.after_prompt = 0, 0, None, None
        return await super().reply(conversation)


class LockstepScheduler(Scheduler):
    """Starts no sequence before all are back."""

    def get_waiting(self, running: Collection[Sequence]) -> list[Sequence]:
        back = all(s.future is not None and s.due <= self.step for s in self.sequences.values())
        return super().get_waiting(running) if back and not running else []


class WaitsForAll(ScriptedEngine):
    """Starts no turn before all have ended theirs; sequences that have ended it are decoded as padding meanwhile."""

    def _create_cache(self) -> None:
        super()._create_cache()
        self.scheduler, cache = LockstepScheduler(self.scheduler.tool_wait_timeout), self.cache
        cache.compact = lambda running: 1 + max(i for i, owner in enumerate(cache.owners) if owner)  # type: ignore[method-assign]


class NoVisionCache(VisionCache):
    """Encodes every image of every prefill, repeated images included."""

    def get_inputs(self, images: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        self.clear()
        return super().get_inputs([(f"{i}-{name}", pixels) for i, (name, pixels) in enumerate(images)])


class ForgetsAndWaits(ForgetsTurns, WaitsForAll):
    pass


@dataclass(frozen=True)
class Variant:
    """An engine without one of its parts."""

    kind: type[ScriptedEngine] = ScriptedEngine
    vision_cache: type[VisionCache] = VisionCache
    alone: bool = False  # no prompt is shared

    def generator(self, stage: Stage) -> ScriptedEngine:
        return stage.engine(self.kind, vision_cache=self.vision_cache(stage.model, stage.tokens.architecture))

    def env(self, stage: Stage) -> Looks:
        return Looks(stage.case, alone=self.alone)


VARIANTS = {
    "engine": Variant(),
    "without_shared_prefill": Variant(alone=True),
    "without_kept_kv": Variant(ForgetsTurns),
    "waiting_for_all": Variant(WaitsForAll),
    "without_vision_reuse": Variant(vision_cache=NoVisionCache),
    "without_all_four": Variant(ForgetsAndWaits, NoVisionCache, alone=True),
}
