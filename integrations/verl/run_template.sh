#!/usr/bin/env bash
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
  "trainer.default_local_dir='$path/checkpoints'" \
{% if model %}
  "actor_rollout_ref.model.path='$path/{{ model }}'" \
{% endif %}
  "$@"
