"""What an export to verl has written, and its texts: the script that starts verl, and the README."""

from dataclasses import dataclass
from pathlib import Path

from ...configs.schema import Config
from ...core.base import BaseMultiTurnEnv
from ...utils.secrets import mask_message
from ...utils.terminal import make_line

MAX_SHOWN = 200  # characters of a name or a setting
SCRIPT = r"""#!/usr/bin/env bash
# GRPO with verl 0.9 on the tasks of this folder. Arguments override settings: ./run.sh trainer.n_gpus_per_node=8
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
if [[ "$here" == *'${'* || "$here" == *\\* ]]; then
  echo "$here: hydra would read another path; move this folder to one without \${ and \\" >&2
  exit 2
fi
path="${here//\'/\\\'}" # as hydra quotes it
exec python3 -m verl.trainer.main_ppo --config-path "$here" --config-name trainer \
  "data.train_files='$path/train.parquet'" \
  "data.val_files='$path/held_out.parquet'" \
  "actor_rollout_ref.rollout.agent.agent_loop_config_path='$path/agent_loop.yaml'" \
{model}  "$@"
"""
MODEL = """\
  "actor_rollout_ref.model.path='$path/{folder}'" \\
"""
README = """\
# {environment}, for verl 0.9

Here verl trains `{model}`, and viewbox plays the episodes: with the same environment, rewards and checks as
`viewbox train`.

    pip install 'viewbox[verl]' 'verl[vllm]'      # an environment without viewbox[train]: their transformers differ
    ./run.sh trainer.n_gpus_per_node=8            # any setting of verl may follow

Start `run.sh` from the folder from which you would start `viewbox train`: relative paths of the data begin there. On
several machines, this folder, viewbox and the data must be at the same paths on all of them; start ray on them first,
and set `trainer.nnodes` to their number.

verl writes checkpoints to `checkpoints/viewbox/{run}` in the folder from which you start it. To play the trained model
with viewbox, turn one of them into a model that transformers loads:

    python3 -m verl.model_merger merge --backend fsdp --target_dir merged \\
        --local_dir 'checkpoints/viewbox/{run}/global_step_N/actor'
    viewbox evaluate --config CONFIG --model merged      # in an environment with viewbox[train]
{lora}{restricted}
| file | content |
|---|---|
| `train.parquet`, `held_out.parquet` | {train:,} and {held_out:,} tasks: where to find each; no images, no answers |
| `viewbox.yaml` | the config: environment, reward, lengths |
| `agent_loop.yaml` | names the agent loop `viewbox` for verl |
| `trainer.yaml` | the settings of verl that differ from its defaults |

## Settings that must agree

The agent loop ends a run in which they do not.

- `data.mm_processor_kwargs`: the pixel bounds with which server and trainer resize images. Both or none.
- `actor_rollout_ref.rollout.name: vllm`, `calculate_log_probs: True`, `logprobs_mode: processed_logprobs`.
- `data.max_prompt_length: {prompt}`. The longest prompt that was measured has {longest} tokens. A prompt longer than
  the setting ends the run with the name of its task.
- `data.max_response_length: {response}`: everything after the prompt, tool results and their images included.

## What verl reports

Validation reports `reward` and, for each component, `rewards/<name>/mean`. `end/<reason>` is the share of episodes with
that end. `episodes/faults` is the share that a fault ended (error, timeout): their reward is 0. In training, such an
episode is left out of its group.
{left_out}"""
LEFT_OUT = """
## Not carried over

For these, verl has settings of its own, which you may add to the command.

{lines}"""
LORA = """
With LoRA, `merged` has the weights from before the training, and the adapter is in `merged/lora_adapter`: join them
with peft first.
"""
RESTRICTED = """
Its data is restricted to one machine: the agent loop refuses a cluster of several, and trackers that show replies.
"""


@dataclass(frozen=True)
class VerlExport:
    """What was written.

    Args:
        folder: the folder.
        tasks: of training and of validation.
        prompt_length: `data.max_prompt_length`.
        longest_prompt: the longest prompt that was measured, in tokens.
        left_out: settings of the config that verl decides itself.
    """

    folder: Path
    tasks: tuple[int, int]
    prompt_length: int
    longest_prompt: int
    left_out: tuple[str, ...] = ()


def write_script(model: str | None = None) -> str:
    """The script that starts verl; `model` is the folder of the model inside the exported one, if it is there."""
    return SCRIPT.replace("{model}", "" if model is None else MODEL.format(folder=model))


def write_readme(config: Config, env: BaseMultiTurnEnv, report: VerlExport) -> str:
    """The README of an exported folder."""
    lines = "".join(f"- `{_quote(line)}`\n" for line in report.left_out)
    return README.format(
        environment=_quote(env.name),
        model=_quote(config.model.name),
        run=_quote(config.log.name or env.name),
        lora="" if config.lora is None else LORA,
        restricted=RESTRICTED if env.restricted else "",
        train=report.tasks[0],
        held_out=report.tasks[1],
        prompt=report.prompt_length,
        longest=report.longest_prompt,
        response=config.rollout.max_completion_tokens,
        left_out=LEFT_OUT.format(lines=lines) if lines else "",
    )


def _quote(text: object) -> str:
    """A text of others as a line of Markdown's code."""
    return make_line(mask_message(str(text)), MAX_SHOWN).replace("`", "'")
