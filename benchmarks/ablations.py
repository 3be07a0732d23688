"""Ablations of the engine, which plays without one of the four things that make it fast, for `rollouts.py`.

The engine has no setting for that. Prompts are not shared if their first words differ; keys and values are not kept if
the length of a sequence is reset; sequences wait for each other if none may start while others run; an image is encoded
again if it has a new name. Without all four, the engine does the work of the per-turn loop.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from scripted_case import LooksEnv, ScriptedEngine, Stage

from viewbox.engines.generator import Conversation
from viewbox.engines.hf.scheduler import Scheduler, Sequence
from viewbox.engines.hf.vision_cache import VisionCache
from viewbox.records import Reply


class NoKeptCacheEngine(ScriptedEngine):
    """Keeps no keys and values between turns: every reply prefills the whole conversation again."""

    async def reply(self, conversation: Conversation) -> Reply:
        sequence = self.sequences[conversation]
        if conversation.record.completion_ids:
            sequence.length, sequence.position, sequence.prompt, sequence.after_prompt = 0, 0, None, None
        return await super().reply(conversation)


class LockstepScheduler(Scheduler):
    """Starts no sequence until all of them wait."""

    def get_waiting(self, running: Collection[Sequence]) -> list[Sequence]:
        back = all(s.future is not None and s.due <= self.step for s in self.sequences.values())
        return super().get_waiting(running) if back and not running else []


class LockstepEngine(ScriptedEngine):
    """Starts no turn until all sequences have ended theirs; those that ended early are decoded as padding."""

    def _create_cache(self) -> None:
        super()._create_cache()
        self.scheduler, cache = LockstepScheduler(self.scheduler.tool_wait_timeout), self.cache
        cache.compact = lambda running: 1 + max(i for i, owner in enumerate(cache.owners) if owner)  # type: ignore[method-assign]


class NoVisionCache(VisionCache):
    """Encodes every image of every prefill, repeated images included."""

    def get_inputs(self, images: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        self.clear()
        return super().get_inputs([(f"{i:05x}{name}", pixels) for i, (name, pixels) in enumerate(images)])


class NoCacheLockstepEngine(NoKeptCacheEngine, LockstepEngine):
    pass


@dataclass(frozen=True)
class Variant:
    """An engine without one of its parts."""

    kind: type[ScriptedEngine] = ScriptedEngine
    vision_cache: type[VisionCache] = VisionCache
    distinct_prompts: bool = False

    def build_engine(self, stage: Stage) -> ScriptedEngine:
        return stage.build_engine(self.kind, vision_cache=self.vision_cache(stage.model, stage.tokens.architecture))

    def build_env(self, stage: Stage) -> LooksEnv:
        return LooksEnv(stage.case, distinct_prompts=self.distinct_prompts)


VARIANTS = {
    "engine": Variant(),
    "without_shared_prefill": Variant(distinct_prompts=True),
    "without_kept_kv": Variant(NoKeptCacheEngine),
    "waiting_for_all": Variant(LockstepEngine),
    "without_vision_reuse": Variant(vision_cache=NoVisionCache),
    "without_all_four": Variant(NoCacheLockstepEngine, NoVisionCache, distinct_prompts=True),
}
