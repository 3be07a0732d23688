"""The engine without one of the four things that make it fast, for the split of its gain in `rollouts.py`.

Each is left out where the engine allows it, not by a setting: a prompt that differs from its first words is nobody
else's; a row whose length is put back is computed again; a row may not start while others speak; a picture that comes
under a new name is looked at again. Without all four it does the work of the per-turn loop.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from looks import Looks, ScriptedEngine, Stage

from viewbox.rollouts.engine.scheduler import Schedule
from viewbox.rollouts.engine.sequence import Row
from viewbox.rollouts.engine.vision_cache import Features
from viewbox.rollouts.generator import Conversation, GeneratedReply


class ForgetsTurns(ScriptedEngine):
    """Nothing is kept in the cache from turn to turn: the whole conversation is prefilled for every reply."""

    async def reply(self, conversation: Conversation) -> GeneratedReply:
        row = self.rows[conversation]
        if conversation.record.completion_ids:
            row.length, row.position, row.prompt, row.after_prompt = 0, 0, None, None
        return await super().reply(conversation)


class Together(Schedule):
    """Nobody starts before all are back."""

    def asking(self, speaking: Collection[Row]) -> list[Row]:
        back = all(row.future is not None and row.due <= self.step for row in self.rows.values())
        return super().asking(speaking) if back and not speaking else []


class WaitsForAll(ScriptedEngine):
    """Nobody starts before all have ended their turn; who has ended it is decoded as padding meanwhile."""

    def _new(self) -> None:
        super()._new()
        self.schedule, cache = Together(self.tool_wait_timeout), self.cache
        cache.compact = lambda speaking: 1 + max(i for i, row in enumerate(cache.held) if row)  # type: ignore[method-assign]


class LooksAnew(Features):
    """Every picture of every prefill goes through the vision tower, as often as it stands there."""

    def of(self, images: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        self.clear()
        return super().of([(f"{i}-{name}", pixels) for i, (name, pixels) in enumerate(images)])


class ForgetsAndWaits(ForgetsTurns, WaitsForAll):
    pass


@dataclass(frozen=True)
class Variant:
    """An engine with something left out."""

    kind: type[ScriptedEngine] = ScriptedEngine
    features: type[Features] = Features
    alone: bool = False  # no prompt is shared

    def generator(self, stage: Stage) -> ScriptedEngine:
        return stage.engine(self.kind, features=self.features(stage.model, stage.tokens.family))

    def env(self, stage: Stage) -> Looks:
        return Looks(stage.case, alone=self.alone)


VARIANTS = {
    "engine": Variant(),
    "without_shared_prefill": Variant(alone=True),
    "without_kept_kv": Variant(ForgetsTurns),
    "waiting_for_all": Variant(WaitsForAll),
    "without_vision_reuse": Variant(features=LooksAnew),
    "without_all_four": Variant(ForgetsAndWaits, LooksAnew, alone=True),
}
