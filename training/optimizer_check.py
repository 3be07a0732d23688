"""Whether the libraries build the optimizer and the schedule of a run and read its settings, on a dummy weight."""

from collections.abc import Mapping
from copy import copy
from typing import Any

import torch
from transformers import Trainer, get_scheduler

from ..errors import ConfigError

# Settings that some optimizers read, and another value of each
OTHER = {"adam_beta1": 0.5, "adam_beta2": 0.5, "adam_epsilon": 0.5, "optim_target_modules": None}
SIDE = 320  # smaller weights have states of 32 bits in optimizers of 8, and are not paged
OWN_STEPS = ("params", "model", "optimizer_dict")  # made of the model's own layers, which a dummy has not


def check_optimizer(arguments: Any, given: Mapping[str, Any]) -> None:
    """Take a step with the optimizer and the schedule of a run. Raise `ConfigError` if a library refuses a setting, a
    package is missing, or a setting is not read."""
    try:
        _take_step(arguments)
    except Exception as error:  # each library raises its own kinds
        reason = f"{type(error).__name__}: {' '.join(str(error).split()):.400}"
        for name in sorted(given, key=["learning_rate", "optim"].__contains__):  # what hangs on these comes first
            default = type(arguments).__dataclass_fields__[name].default
            if not _fails(_take_step, _change(arguments, name, default)):
                raise _refuse(name, given[name], reason) from error
        raise _refuse("optim", given.get("optim"), reason) from error
    optim, schedule = (getattr(item, "value", item) for item in (arguments.optim, arguments.lr_scheduler_type))
    unread = f"is not read by train.optim = {optim}; allowed: leave it out, or another optimizer"
    for name, other in OTHER.items():
        if name in given and given[name] != other and not _reads(arguments, name, other):
            raise _refuse(name, given[name], unread)
    parts = str(given.get("optim_args") or "").split(",")
    for option in filter(None, parts):
        others = ",".join(f"{option.partition('=')[0]}=?" if item == option else item for item in parts)
        if option.startswith("weight_decay=") or not _reads(arguments, "optim_args", others):
            raise _refuse("optim_args", option, f"{unread} (the decay is train.weight_decay)")
    kwargs = given.get("lr_scheduler_kwargs")
    if kwargs and not _fails(_take_step, _change(arguments, "lr_scheduler_kwargs", {**kwargs, "?": 0})):
        raise _refuse(
            "lr_scheduler_kwargs", kwargs, f"is not read by train.lr_scheduler_type = {schedule}; allowed: leave it out"
        )
    if schedule == "constant" and arguments.get_warmup_steps(1000):
        text = "is not read by train.lr_scheduler_type = constant; allowed: constant_with_warmup"
        raise _refuse("warmup_steps", arguments.warmup_steps, text)


def _refuse(name: str, value: object, text: str) -> ConfigError:
    more = "; its arguments are train.lr_scheduler_kwargs" if name == "lr_scheduler_type" else ""
    return ConfigError(f"train.{name} = {value!r}: {text}{more}", key=f"train.{name}")


def _take_step(arguments: Any) -> None:
    weight = torch.nn.Linear(SIDE, SIDE).to(arguments.device)
    kind, settings = Trainer.get_optimizer_cls_and_kwargs(arguments, weight)
    if any(name in settings for name in OWN_STEPS) or not isinstance(kind, type):
        return
    groups = [{"params": list(weight.parameters()), "weight_decay": arguments.weight_decay}]
    optimizer, steps = kind(groups, **settings), max(1, arguments.max_steps)
    more = {"num_warmup_steps": arguments.get_warmup_steps(steps), "num_training_steps": steps}
    more["scheduler_specific_kwargs"] = arguments.lr_scheduler_kwargs
    scheduler = get_scheduler(arguments.lr_scheduler_type, optimizer, **more)
    weight(torch.ones(1, SIDE, device=arguments.device)).sum().backward()
    optimizer.step()
    scheduler.step()


def _reads(arguments: Any, name: str, other: object) -> bool:
    """Return whether the settings of the optimizer change with an argument; an error over it counts."""
    weight = torch.nn.Linear(SIDE, SIDE)
    try:
        changed = Trainer.get_optimizer_cls_and_kwargs(_change(arguments, name, other), weight)
    except Exception:
        return True
    return bool(changed != Trainer.get_optimizer_cls_and_kwargs(arguments, weight))


def _fails(function: Any, *given: Any) -> bool:
    try:
        function(*given)
    except Exception:
        return True
    return False


def _change(arguments: Any, name: str, value: object) -> Any:
    changed = copy(arguments)
    setattr(changed, name, value)
    return changed
