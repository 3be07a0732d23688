"""What an export to verl has written, and its texts: the script that starts verl, and the README."""

from dataclasses import dataclass
from pathlib import Path

from viewbox.configs.schema import Config
from viewbox.envs.base import BaseMultiTurnEnv

SCRIPT = """\
#!/usr/bin/env bash
# GRPO with verl 0.9 on the tasks of this folder. Arguments override settings: ./run.sh trainer.n_gpus_per_node=8
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
exec python3 -m verl.trainer.main_ppo --config-path "$here" --config-name trainer \\
  "data.train_files='$here/train.parquet'" \\
  "data.val_files='$here/held_out.parquet'" \\
  "actor_rollout_ref.rollout.agent.agent_loop_config_path='$here/agent_loop.yaml'" \\
{model}  "$@"
"""
MODEL = """\
  "actor_rollout_ref.model.path='$here/{folder}'" \\
"""
README = """\
# {environment}, for verl 0.9

verl trains `{model}` here, and viewbox plays the episodes: the same environment, rewards and checks as `viewbox train`.

    pip install 'viewbox[verl]' 'verl[vllm]'      # an environment without viewbox[train]: their transformers differ
    ./run.sh trainer.n_gpus_per_node=8            # any setting of verl may follow

Start it in the folder in which `viewbox train` would find the data. On several machines, this folder, viewbox and the
data must be at the same paths on all of them, and `trainer.nnodes` says how many there are.
{restricted}
| file | content |
|---|---|
| `train.parquet`, `held_out.parquet` | {train:,} and {held_out:,} tasks: where each is found; no images, no answers |
| `viewbox.yaml` | the config: environment, reward, lengths |
| `agent_loop.yaml` | names the agent loop `viewbox` for verl |
| `trainer.yaml` | the settings of verl that differ from its defaults |

## Settings that must agree

The agent loop refuses a run in which they do not.

- `data.mm_processor_kwargs`: the pixel bounds with which server and trainer resize images. Both or none.
- `actor_rollout_ref.rollout.name: vllm`, `calculate_log_probs: True`, `logprobs_mode: processed_logprobs`.
- `data.max_prompt_length: {prompt}`. The longest of the prompts measured has {longest} tokens; a longer one than the
  setting is refused, with its task.
- `data.max_response_length: {response}`: everything after the prompt, tool results and their images included.

## What verl reports

Validation reports `reward` and, for each component, `rewards/<name>/mean`; `end/<reason>` is the share of episodes with
that end, `episodes/faults` that of those that a fault ended (error, timeout), whose reward is 0. In training such an
episode is left out of its group.
{left_out}"""
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
    lines = "".join(f"- `{line}`\n" for line in report.left_out)
    return README.format(
        environment=env.name,
        model=config.model.name,
        restricted=RESTRICTED if env.restricted else "",
        train=report.tasks[0],
        held_out=report.tasks[1],
        prompt=report.prompt_length,
        longest=report.longest_prompt,
        response=config.rollout.max_completion_tokens,
        left_out=f"\n## Not carried over\n\nverl has settings of its own for these.\n\n{lines}" if lines else "",
    )
