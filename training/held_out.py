"""Measures a policy on held-out tasks: it plays alone, or the environment's oracle looks and the policy answers.

Evaluation every so many steps keeps the best checkpoint and can stop a run early. The episodes of the first, the best
and the latest evaluation stay in `held_out/<step>/`, so that those before and after can be looked at and compared.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from accelerate import PartialState
from accelerate.utils import gather_object
from msgspec.structs import replace
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..core.base import BaseMultiTurnEnv
from ..core.tasks import to_sequence
from ..engines.generator import Conversation, Generator
from ..engines.scripted import Script, ScriptedGenerator
from ..records import Episode, EpisodeTokens, Task
from ..rollouts.play import play_many
from ..rollouts.scoring.metrics import compute_environment_metrics, drop_undefined, measure_sameness
from ..rollouts.scoring.summary import ABOUT, summarize
from ..rollouts.store import run_folder
from ..rollouts.store.run_folder import HELD_OUT
from ..rollouts.store.writer import EpisodeWriter
from .checkpoints import Best
from .generation import Sampler

log = logging.getLogger(__name__)
PREFIX = "held_out/"
MANY = 20  # episodes of which it can be told whether answers are all the same
FEWER = 0.02  # share of the episodes that may lack a score more than at the best step: a reward that fails is no gain


def build_script(env: BaseMultiTurnEnv, kind: Literal["oracle", "demonstration"], **habits: float) -> Script:
    """Return a script that gives the environment's own replies, then None, so that the model continues. `kind`:
    "oracle" for tool calls only, "demonstration" for whole episodes. `habits`: the probability of each imperfection of
    a demonstration, such as `guess=0.5`."""

    def script(conversation: Conversation) -> str | None:
        assert conversation.task is not None
        played = env.for_task(conversation.task)
        if kind == "oracle":
            replies = played.oracle(conversation.task)
        else:
            replies = played.demonstration(conversation.task, conversation.seed, **habits)
        number = sum(message.role == "assistant" for message in conversation.messages)
        return replies[number] if number < len(replies) else None

    return script


def collect_episodes(
    env: BaseMultiTurnEnv,
    tasks: Sequence[Task],
    generator: Generator,
    *,
    slots: int,
    seed: int,
    timeout: float | None = None,
    on_episode: Callable[[int, int], None] = lambda done, total: None,
) -> list[Episode]:
    """Play an episode for each task; return them in the order of the tasks.
    `on_episode` is told how many of how many this process has played, every second.

    If there are several processes, each plays every n-th task with the seed it has anyway; all get all episodes. Those
    of other processes come without pixels and logprobs."""
    processes = PartialState()
    rank, count = processes.process_index, processes.num_processes
    others = {(index, 0) for index in range(len(tasks)) if index % count != rank}

    episodes: list[Episode] = []

    async def tell() -> None:
        while True:
            on_episode(len(episodes), len(tasks) - len(others))
            await asyncio.sleep(1)

    async def play() -> None:
        telling = asyncio.create_task(tell())
        played = play_many(env, tasks, generator, concurrency=slots, seed=seed, skip=others, timeout=timeout)
        async for episode in played:
            episodes.append(episode)
        telling.cancel()

    asyncio.run(play())
    env.release()
    if count > 1:
        light = gather_object([(episode.to_dict(), _drop_heavy(episode.tokens)) for episode in episodes])
        local = {episode.info["index"]: episode for episode in episodes}
        received = (replace(Episode.from_dict(data), tokens=tokens) for data, tokens in light)
        episodes = [local.get(episode.info["index"], episode) for episode in received]
    return sorted(episodes, key=lambda episode: episode.info["index"])


def _drop_heavy(tokens: EpisodeTokens | None) -> EpisodeTokens | None:
    return None if tokens is None else replace(tokens, logprobs=(0.0,) * len(tokens.mask), images=(), prompt_images=0)


def evaluate(
    env: BaseMultiTurnEnv,
    model: PreTrainedModel,
    sampler: Sampler,
    *,
    tasks: int,
    seed: int,
    oracle: bool = False,
    on_episode: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[dict[str, Any], list[Episode]]:
    """Play the first `tasks` tasks and return (figures, episodes).

    Args:
        oracle: whether the environment's oracle makes the tool calls, and the policy only answers.

    Returns:
        figures: a float for each name of `compute_environment_metrics` and for each metric of the environment
            (`metrics/NAME`), unless no episode has it; `intervals` maps the same names to [low, high], and `counts` to
            the number of episodes that each counts.
        episodes: in the order of the tasks.
    """
    generator = sampler.prepare(model)()
    if oracle:
        generator = ScriptedGenerator(sampler.tokens, build_script(env, "oracle"), generator)
    selected, slots = to_sequence(env.tasks, env.name)[:tasks], sampler.rollout.slots
    options: dict[str, Any] = {"slots": slots, "seed": seed, "timeout": sampler.timeout, "on_episode": on_episode}
    episodes = collect_episodes(env, selected, generator, **options)
    sampler.release()
    return compute_figures(episodes, env), episodes


def compute_figures(episodes: Sequence[Episode], env: BaseMultiTurnEnv) -> dict[str, object]:
    """Return the figures of episodes, as `evaluate` returns them; logs a warning for each metric that fails."""
    summary = summarize(episodes, env)
    for problem in summary.problems:
        log.warning("%s", problem)
    metrics = {name: value for name, value in summary.get_means().items() if name.startswith("metrics/")}
    sameness = measure_sameness(episodes) if len(episodes) >= MANY else {}
    means = drop_undefined(compute_environment_metrics(episodes, env) | sameness)
    return {**means, **metrics, "intervals": summary.get_intervals(), "counts": summary.get_counts()}


def store_episodes(run: Path, step: int, episodes: Sequence[Episode], best: int | None = None) -> None:
    """Store the held-out episodes of a step in `held_out/<step>/`, without tokens; remove those no longer wanted.
    Every process calls this, and stores the episodes that it played. A step that is stored already stays as it is."""
    processes = PartialState()
    folder, unfinished = run / HELD_OUT / str(step), run / HELD_OUT / f".{step}"
    if folder.exists():
        return
    if processes.is_main_process:
        shutil.rmtree(unfinished, ignore_errors=True)
    processes.wait_for_everyone()
    with EpisodeWriter(unfinished) as writer:
        for episode in episodes:
            if episode.info["index"] % processes.num_processes == processes.process_index:  # others have no pixels here
                writer.append_or_error(replace(episode, tokens=None, info={**episode.info, "step": step}))
    processes.wait_for_everyone()
    if processes.is_main_process:
        unfinished.rename(folder)
        for other in run_folder.list_held_out(run)[1:]:
            if other.name not in (str(step), str(best)):
                shutil.rmtree(other)


class HeldOutEvaluation(TrainerCallback):
    """Evaluates after every `every`-th step and after the last one, on all processes.

    The figures join the step's line as `held_out/…`. If the reward is the best so far, that before training included,
    a checkpoint is saved, which stays until there is a better one. A step with fewer scored episodes than the best so
    far, by more than `FEWER`, is not better: its mean leaves out what cannot be scored. If nothing is better after
    `patience` evaluations, training stops.

    Args:
        trainer: one of `Checkpoints`, which has `add_figures`; its `best` is set, and its `is_finished`.
        evaluate: plays the held-out tasks and returns the same figures on every process; None if it was interrupted.
        patience: evaluations without a better reward after which training stops; None: it never does.
        keeps: whether the weights of the best step are wanted, those of step 0 too.
        blind: the reward of the best answer that knows only the question, which joins the figures.
    """

    def __init__(
        self,
        trainer: Any,
        evaluate: Callable[[], dict[str, Any] | None],
        every: int,
        patience: int | None = None,
        before: Mapping[str, Any] | None = None,
        keeps: bool = True,
        blind: float | None = None,
    ) -> None:
        self.trainer, self.evaluate, self.every, self.patience = trainer, evaluate, every, patience
        self.before, self.keeps, self.blind = before or {}, keeps, blind
        trainer.is_finished = self.is_exhausted

    def is_exhausted(self, step: int) -> bool:
        """Return whether so many evaluations up to `step` brought nothing better that training ends."""
        best = self.trainer.best
        if self.patience is None or step % self.every:
            return False
        return step // self.every - (0 if best is None else best.step // self.every) >= self.patience

    def on_train_begin(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        # a resumed run takes the best step from its checkpoint, unless that is of other tasks
        if self._set_best(0, self.before) and self.keeps and state.global_step == 0:
            self.trainer.save_first()

    def _set_best(self, step: int, figures: Mapping[str, Any]) -> bool:
        """Record a step if it is the best so far; return whether it is."""
        reward, scored, best = figures.get("reward"), figures.get("episodes/scored", 1.0), self.trainer.best
        if reward is None or (best is not None and (reward <= best.reward or scored < best.scored - FEWER)):
            return False
        self.trainer.best = Best(step, reward, scored if best is None else max(scored, best.scored))
        return True

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        step = state.global_step
        if step % self.every and step != state.max_steps:
            return
        started = time.perf_counter()
        figures = self.evaluate()
        if figures is None:
            return
        numbers = drop_undefined({name: value for name, value in figures.items() if name not in ABOUT})
        if self._set_best(step, numbers):
            control.should_save = True
        if self.trainer.best is not None:
            numbers["best"] = self.trainer.best.reward
        if self.blind is not None:
            numbers["blind"] = self.blind
        self.trainer.add_figures({PREFIX + name: value for name, value in numbers.items()})
        self.trainer.add_figures({"time/evaluation": time.perf_counter() - started})
        control.should_log = True  # in the line of this step, whatever `logging_steps` is
        if step < state.max_steps and self.is_exhausted(step):
            control.should_training_stop = True
