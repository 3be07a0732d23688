"""Will it run? One table of what is asked of a `Plan`, the cheap questions first.

A question writes what it finds into the plan's `lines`, `notes` and `warnings`, which `--dry-run` shows, and yields or
raises the errors that refuse the run. All errors of a stage are said together. A stage with errors is the last one
asked, because the next takes longer: `config` needs no torch, `tasks` opens some, `model` loads the libraries.
"""

import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

from ..assets import resolve_model_path
from ..configs.schema import Config
from ..configs.sections import SamplingParams
from ..configs.train_sections import METHOD_OF, TrainSection
from ..core.base import BaseMultiTurnEnv
from ..core.tasks import to_sequence
from ..engines.hf.quantization import check_bitsandbytes
from ..engines.table import get_engine, get_server_engine
from ..envs.from_config import check_turns, prepare_env
from ..errors import BadRow, ConfigError, ImageError, ViewboxError, describe_unknown
from ..images.coordinates import needs_size
from ..records import Task
from ..rewards.explain import describe_reward
from ..rollouts.exchange.selection import SelectionReport
from ..utils.files import check_out, find_existing
from ..utils.secrets import mask_assignments
from .plan import FIRST, Plan, open_crowded_task, open_first_task
from .precision import describe_precision
from .sft.selection import select_episodes
from .trainer_args import list_problems

GIB = 2**30
CONTEXT_KEY = "rollout.max_completion_tokens"
MAX_COMPARED = 5000  # tasks of each environment
MAX_SECONDS = 2.0  # in which an environment's tasks are made; fewer are compared if each takes long to draw
STAGES = ("config", "tasks", "model", "shown")  # the last one is of a dry run only


class Row(NamedTuple):
    """A question of a stage; it is not asked if one that it `needs` has found errors."""

    stage: str
    ask: Callable[[Plan], Iterator[ViewboxError] | None]
    needs: tuple[Callable[[Plan], object], ...] = ()


def check(plan: Plan, shown: Iterable[Row] = ()) -> Plan:
    """Ask the rows of a plan, and return it.

    Args:
        shown: more rows, such as those of a dry run, which open more images and play right answers.

    Raises:
        ViewboxError: what is wrong with the first stage that has errors, each with the line of the file that sets it.
    """
    for stage, rows in groupby((*ROWS, *shown), key=lambda row: row.stage):
        errors, failed = list[ViewboxError](), set[object]()
        for row in rows:
            if failed & set(row.needs):
                continue
            try:
                problems = list(_ask(row, plan))
            except Exception:  # an author's own code; what is known to be wrong comes first
                if not errors:
                    raise
                continue
            errors += problems
            failed |= {row.ask} if problems else set()
        if errors:
            raise _join(plan, errors, stage)
    return plan


def _ask(row: Row, plan: Plan) -> Iterator[ViewboxError]:
    try:
        yield from row.ask(plan) or ()
    except ViewboxError as error:
        yield error


def _join(plan: Plan, errors: list[ViewboxError], stage: str) -> ViewboxError:
    """Return one error of all, with a line each; a single one keeps its class."""
    find_place = plan.config._document.find_place
    texts = list(dict.fromkeys(f"{find_place(error.key or '')}: {error}" for error in errors))
    first = errors[0]
    if len(texts) == 1:
        first.args = (texts[0],)
        return first
    later = " and ".join(STAGES[STAGES.index(stage) + 1 : -1])
    texts += [f"{len(texts)} problems" + (f"; what needs {later} is asked after these" if later else "")]
    return ConfigError("\n".join(texts), key=first.key)


SHARDED = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism config",
}


def check_launch(plan: Plan | None = None, variables: Mapping[str, str] = os.environ) -> None:
    """Raise `ConfigError` if the launcher's environment variables ask for what would not happen."""
    for name, kind in SHARDED.items():
        if variables.get(name, "").lower() in ("true", "t", "1", "yes", "y", "on"):
            raise ConfigError(
                f"the launcher asks for {kind} ({name}); allowed: one device, or several with DDP: "
                "torchrun --nproc_per_node N train.py CONFIG"
            )
    # `accelerate launch --cpu --num_processes 2` sets the address of a group of processes, and starts one
    if variables.keys() >= {"ACCELERATE_MIXED_PRECISION", "MASTER_PORT"} and "WORLD_SIZE" not in variables:
        raise ConfigError(
            "accelerate launch was asked for several processes and started one (it does so with --cpu); allowed: "
            "torchrun --nproc_per_node N train.py CONFIG, or --num_processes 1"
        )


def list_contradictions(plan: Plan) -> Iterator[ConfigError]:
    """Yield each setting that another one contradicts."""
    rollout, train, log, problem = plan.config.rollout, plan.config.train, plan.config.log, plan.problem
    arguments, has_lora = train.arguments, plan.config.lora is not None
    if rollout.temperature == 0 and train.method != "sft":
        yield problem("rollout.temperature", f"{train.method} needs samples that differ", "above 0")
    for name, method in METHOD_OF.items():
        written = method == "grpo" and name in train.model_fields_set  # a saved config has none of these
        is_given = written or getattr(train, name) != TrainSection.model_fields[name].default
        if train.method != method and is_given:
            text = f"train.{name}: only with train.method = {method}; given: {train.method}"
            yield ConfigError(text, key=f"train.{name}")
    if log.eval_patience is not None and log.eval_steps is None:
        yield problem("log.eval_patience", "counts evaluations during training", "only with log.eval_steps")
    if log.eval_steps is not None and not log.eval_tasks:
        nothing = "log.eval_tasks = 0, so that there is nothing to play"
        yield problem("log.eval_steps", nothing, "log.eval_tasks of at least 1")
    if plan.config.model.tiny is not None and not has_lora and arguments.get("beta"):
        yield problem("train.beta", "model.tiny has no saved weights as a reference", "0, or add lora")
    if arguments.get("sync_ref_model") is True and (has_lora or not arguments.get("beta")):
        needed = "train.beta above 0, and no section lora"
        yield problem("train.sync_ref_model", "there is no reference model to update", needed)
    if (most := rollout.max_completion_tokens) < rollout.max_reply_tokens:
        plan.fit("rollout.max_reply_tokens", most, f"an episode has {CONTEXT_KEY} = {most}")


def check_method(plan: Plan) -> None:
    config, engine = plan.config, get_server_engine(plan.config.rollout.engine)
    select_episodes((), config.train, SelectionReport(""))  # reads the conditions
    if engine is not None:
        plan.lines["episodes"] = f"sampled by {engine.describe(config.rollout)}"
    plan.lines["weights"] = describe_precision(config)
    if config.lora is not None and config.lora.quantize is not None:
        check_bitsandbytes(config.lora.quantize)
    plan.notes += describe_filters(config.rollout, config.train.method)


def describe_filters(sampling: SamplingParams, method: str) -> list[str]:
    """Return a warning if a GRPO run samples with filters: the loss uses log-probs of the unfiltered distribution.

    >>> print(*describe_filters(SamplingParams(top_p=0.9), "grpo"))
    rollout.top_p = 0.9: episodes are sampled from a filtered distribution, but the loss uses the unfiltered one
    """
    filters = sampling.list_filters()
    if not filters or method != "grpo":
        return []
    settings = ", ".join(f"rollout.{name} = {value}" for name, value in filters.items())
    return [f"{settings}: episodes are sampled from a filtered distribution, but the loss uses the unfiltered one"]


def check_folders(plan: Plan) -> None:
    """Raise `ConfigError` if `log.dir` or `log.export` is not a folder that can be written to."""
    log, name = plan.config.log, plan.config.model.name
    for key, given in (("log.dir", log.dir), ("log.export", log.export)):
        if given is not None:
            check_out(given, "folder", key)
        if given is not None and name is not None and Path(given).resolve() == Path(resolve_model_path(name)).resolve():
            raise ConfigError(f"{key} = {given!r}: is the folder of model.name; allowed: another folder", key=key)


def build_environments(plan: Plan) -> Iterator[ConfigError]:
    """Build the environments with their reward; nothing is opened."""
    env = plan.draft.env
    yield from _list_unknown_fields(plan.config.reward, env, "reward")
    shown = ("name", "max_turns", "tools", "coordinates", "max_pixels")
    plan.lines["environment"] = {name: getattr(env, name) for name in shown}
    plan.lines["reward"] = mask_assignments(describe_reward(env.reward))


def _list_unknown_fields(spec: Any, env: BaseMultiTurnEnv, path: str) -> Iterator[ConfigError]:
    """Yield each field of a reward that no answer can have: it would always be 0."""
    if not isinstance(spec, dict) or not isinstance(env.answer_format.schema, dict):
        return
    known, field = env.answer_format.schema.get("properties", {}), spec.get("field")
    if known and isinstance(field, str) and field.split(".")[0] not in known:
        text = describe_unknown(f"answer field of {env.name}", field, known)
        yield ConfigError(f"{path}.field: {text}", key=f"{path}.field")
    for name, component in (spec.get("components") or {}).items():
        yield from _list_unknown_fields(component, env, f"{path}.components.{name}")


def check_may_train(plan: Plan) -> None:
    """Raise `ConfigError` if an environment, or one of a mixture, allows no training."""
    env, held_out = plan.draft
    check_turns(env, "env")
    try:
        env.check_may_train()
    except ConfigError as error:
        raise ConfigError(f"env.{error}", key=f"env.{error.key}") from error
    if plan.config.log.eval_tasks:
        check_turns(held_out, _find_section(plan, "history", "max_turns", "tools"))


def _find_section(plan: Plan, *keys: str) -> str:
    return "env.eval" if plan.config.env.eval.keys() & set(keys) else "env"


def prepare_tools(plan: Plan) -> None:
    prepare_env(plan.draft.env)
    if plan.config.log.eval_tasks:
        prepare_env(plan.draft.held_out, _find_section(plan, "specialists"))


def open_tasks(plan: Plan) -> None:
    assert plan.first_task


def count_held_out(plan: Plan) -> None:
    """Fit the number of held-out tasks to those that there are."""
    held_out, wanted = plan.draft.held_out, plan.config.log.eval_tasks
    if wanted:
        open_first_task(held_out, "env.eval" if plan.config.env.eval else "env")
        number = len(to_sequence(held_out.tasks, held_out.name))
        if wanted > number:
            plan.fit("log.eval_tasks", number, f"there are only {number} held-out tasks")


def check_saved_episodes(plan: Plan) -> None:
    train, env = plan.config.train, plan.draft.env
    if train.episodes is not None:
        _check_episodes(train.episodes, env)
    if train.demonstrations is not None:
        key = "train.demonstrations.habits" if train.demonstrations.habits else "train.demonstrations"
        try:
            env.for_task(plan.first_task).demonstration(plan.first_task, 0, **train.demonstrations.habits)
        except (TypeError, ConfigError) as error:
            raise ConfigError(f"{key}: {error}", key=key) from error


def _check_episodes(folder: str, env: BaseMultiTurnEnv) -> None:
    from ..rollouts.store.reader import load
    from .sft.episodes import read_transcripts

    try:
        if Path(folder).is_file():
            problems = Counter[str]()
            shown: dict[str, Any] = {"max_pixels": env.max_pixels, "multiple": env.pixel_multiple}
            if next(read_transcripts(Path(folder), **shown, left_out=problems), None) is None:
                reason = next(iter(problems), "it is empty")
                raise ConfigError(f"{folder}: no row of it can be learned from; {reason:.300}")
        elif next(load(folder), None) is None:
            raise ConfigError(f"{folder!r}: holds no episodes; allowed: a folder with saved episodes")
    except ViewboxError as error:
        raise ConfigError(f"train.episodes: {error}", key="train.episodes") from error


def compare_held_out(plan: Plan) -> None:
    """Warn if tasks that measure the policy are also trained on. Only the first tasks of each environment are compared,
    as many as are made in `MAX_SECONDS`, and tasks are equal if all their fields are."""
    count = min(plan.config.log.eval_tasks, MAX_COMPARED)
    if not count:
        return
    trained = {task.id: task for task in make_tasks(plan.draft.env, MAX_COMPARED)}
    measured = list(make_tasks(plan.draft.held_out, count))
    if same := sum(trained.get(task.id) == task for task in measured):
        way_out = "see env.eval" if plan.config.env.eval else "env.eval is empty: set it, e.g. {split: test}"
        plan.lines["held out"] = (
            f"warning: {same} of {len(measured)} held-out tasks are also trained on, so their figures do not show what "
            f"the policy does on new tasks; {way_out}, or set log.eval_tasks: 0"
        )


def make_tasks(env: BaseMultiTurnEnv, count: int) -> Iterator[Task]:
    """Yield the first `count` tasks, or fewer once the time is over."""
    end = time.monotonic() + MAX_SECONDS
    for task in islice(to_sequence(env.tasks, env.name), count):
        yield task
        if time.monotonic() > end:
            return


def fit_context(plan: Plan) -> None:
    """Fit the tokens of an episode to the model's context behind the longest of the first prompts. Raise `ConfigError`
    if what was written fits behind none of the first prompts (one that is longer costs its own episodes), or an image
    does not fit an episode."""
    if plan.model is None:
        if (name := plan.config.model.name) is not None:
            plan.notes.append(f"model.name = {name}: no folder here, so a hub name; checked at the start")
        return
    env, budget, reply = plan.envs.env, plan.config.rollout.max_completion_tokens, plan.config.rollout.max_reply_tokens
    length, context = _measure_prompt(plan, open_crowded_task(env, "env"))
    if length + budget <= context:
        return
    for task in islice(to_sequence(env.tasks, env.name), FIRST):
        with suppress(BadRow, ImageError, ConfigError):
            if _measure_prompt(plan, task)[0] + budget <= context:
                return
    room = int(context - length)
    why = f"with a prompt of {length} tokens an episode does not fit the model's context of {context}"
    if room <= 0:
        raise plan.problem(CONTEXT_KEY, why, "a shorter prompt, or fewer and smaller images")
    plan.fit(CONTEXT_KEY, room, why)
    if reply > room:
        plan.fit("rollout.max_reply_tokens", room, why)


def _measure_prompt(plan: Plan, task: Task) -> tuple[int, float]:
    """Return the tokens of a task's prompt and those of the model's context. Raise `ConfigError` if an image does not
    fit an episode."""
    assert plan.model is not None
    env = plan.envs.env.for_task(task)
    state = env.reset(task, seed=0)
    tokens, prompt, images = plan.model.encode_prompt(plan.config, plan.envs.env, state)
    budget, side = plan.config.rollout.max_completion_tokens, plan.model.view_settings.get("pixel_multiple") or 0
    for ref in images if needs_size(env.coordinates) else ():
        if not side or tokens.count_image_tokens(ref) * side**2 != ref.width * ref.height:
            size = f"the model's processor makes another size of a picture of {ref.width} x {ref.height}"
            why = f"{size}, so that its pixels are not those of the view"
            raise plan.problem("env.coordinates", why, "unit or per_mille", "pixel")
    image = max((tokens.get_pixels(ref).tokens for ref in images), default=0)
    if state.tool_schemas and image >= budget:
        why = f"an image shown by a tool takes {image} tokens and never fits an episode"
        raise plan.problem("env.max_pixels", why, f"fewer than {CONTEXT_KEY} = {budget}", plan.envs.env.max_pixels)
    return len(prompt), tokens.context


def check_arguments(plan: Plan) -> None:
    """Build the trainer's arguments, take a step with the optimizer, and look at what is sent elsewhere."""
    from .optimizer_check import check_optimizer
    from .reporting.tracking import check_trackers, check_uploads, list_sources

    check_trackers(plan.config.log.report_to)
    check_optimizer(plan.arguments, plan.config.train.arguments)
    for source in list_sources(plan.config, *plan.draft):
        check_uploads(plan.config.log, source, plan.arguments)
    default = "" if "learning_rate" in plan.config.train.arguments else " (default for what is trained)"
    plan.lines["trainer"] = type(plan.arguments).__name__
    plan.lines["learning rate"] = f"{plan.arguments.learning_rate:g}{default}"


def count_steps(plan: Plan) -> None:
    """Say how many steps a run has. Raise `ConfigError` if there would be none."""
    arguments, env = plan.arguments, plan.draft.env
    count = len(to_sequence(env.tasks, env.name))
    if plan.config.train.method == "grpo":
        plan.lines["plan"] = plan_steps(count, arguments)
        return
    batch = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps
    steps = f"{arguments.max_steps} steps" if arguments.max_steps > 0 else f"{arguments.num_train_epochs:g} epochs"
    processes = f"{arguments.world_size} process{'es' * (arguments.world_size > 1)}"
    plan.lines["plan"] = f"{processes}, {count} tasks; {batch * arguments.world_size} episodes a step, {steps}"


def plan_steps(num_tasks: int, arguments: Any) -> str:
    """Return the steps of a GRPO run with these arguments (`GRPOConfig`), in one line. Raise `ConfigError` if there are
    fewer tasks than one generation needs, so that no step would be trained."""
    episodes, group = arguments.generation_batch_size, arguments.num_generations
    generations = num_tasks // (episodes // group)
    if generations == 0:
        raise ConfigError(
            f"env: has {num_tasks} tasks, fewer than the {episodes // group} of one generation ({episodes} episodes in "
            f"groups of {group}): no step would be trained; allowed: more tasks, or a smaller "
            "train.per_device_train_batch_size",
            key="train.per_device_train_batch_size",
        )
    updates = arguments.steps_per_generation * arguments.num_iterations / arguments.gradient_accumulation_steps
    an_epoch = generations * updates  # steps until every task was played; those that fill no generation are left out
    steps = arguments.max_steps if arguments.max_steps > 0 else math.ceil(arguments.num_train_epochs * an_epoch)
    processes = max(1, episodes // (arguments.per_device_train_batch_size * arguments.steps_per_generation))
    return (
        f"{processes} process{'es' * (processes > 1)}, {num_tasks} tasks; {episodes} episodes ({episodes // group} "
        f"tasks x {group}) for {updates:g} update{'s' * (updates != 1)}; {an_epoch:g} steps an epoch, {steps} steps "
        f"({steps / an_epoch:.2g} epochs)"
    )


def check_shapes(plan: Plan) -> None:
    """Say what the shapes of a model that is here tell. Raise `ConfigError` if its checkpoints do not fit the disk."""
    from .shapes import count_parameters, describe_pictures, describe_way

    if plan.model is None:
        return
    parameters, folder = count_parameters(plan.shapes), plan.config.log.dir
    plan.lines["parameters"] = parameters.line
    plan.lines["model"] = describe_way(plan.config, plan.shapes)
    plan.lines["pictures"] = describe_pictures(plan.config, plan.envs.env, plan.model)
    needed = estimate_bytes(plan.config, plan.arguments, parameters.total, parameters.trained)
    free = shutil.disk_usage(find_existing(Path(folder))).free
    text = f"about {needed / GIB:.2g} GiB for checkpoints and the model, {free / GIB:.3g} GiB free for {folder}"
    if needed > free:
        more_room = "a disk with more room, a smaller train.save_total_limit, or train.save_only_model"
        raise ConfigError(f"log.dir: {text}; allowed: {more_room}", key="log.dir")
    plan.lines["disk"] = text


def estimate_bytes(config: Config, arguments: Any, total: int, trained: int) -> int:
    """Return the bytes that a run writes: its checkpoints, the final model and `log.export`, which are saved in
    float32."""
    whole = 4 * total
    optimizer = 0 if arguments.save_only_model else 8 * trained  # Adam: two numbers a parameter
    checkpoint = (4 * trained if config.lora is not None else whole) + optimizer
    count = 0
    if str(getattr(arguments.save_strategy, "value", arguments.save_strategy)) != "no":
        steps = max(1, arguments.max_steps)
        every = arguments.save_steps if arguments.save_steps >= 1 else max(1, int(arguments.save_steps * steps))
        count = max(1, int(steps // every))
        if arguments.save_total_limit:
            count = min(count, arguments.save_total_limit) + 1  # a new one is complete before an old one is deleted
    return checkpoint * count + whole * (1 + (config.log.export is not None))


ROWS = (
    Row("config", check_launch),
    Row("config", list_contradictions),
    Row("config", lambda plan: list_problems(plan.config)),
    Row("config", check_method),
    Row("config", check_folders),
    Row("config", build_environments),
    Row("config", check_may_train),
    Row("config", lambda plan: get_engine(plan.config.rollout.engine).check(plan.config, plan.draft)),
    Row("tasks", prepare_tools),
    Row("tasks", open_tasks, (prepare_tools,)),
    Row("tasks", count_held_out, (prepare_tools,)),
    Row("tasks", check_saved_episodes, (open_tasks,)),
    Row("tasks", compare_held_out, (open_tasks, count_held_out)),
    Row("model", fit_context),
    Row("model", check_arguments),
    Row("model", count_steps),
    Row("model", check_shapes),
)
