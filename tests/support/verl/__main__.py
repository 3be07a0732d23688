"""verl's own trainer on this machine's CPU: `python -m tests.support.verl FOLDER [--nodes N] [SETTING=VALUE ...]`.

FOLDER is what `viewbox export CONFIG --to verl --out FOLDER` wrote. Everything is verl's: main_ppo, ray, TransferQueue,
FSDP2 (over gloo), vLLM (its build for CPUs), weights sent after each update, checkpoints. ray is told of GPUs that are
not there.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
MODULE = "tests.support.verl"
ENVIRONMENT = {
    "VERL_USE_EXTERNAL_MODULES": f"{MODULE}.platform",
    "VERL_ENGINE_DEVICE": "cuda",  # for which verl registers its FSDP engine (`fsdp/transformer_impl.py:1143`)
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
ROLLOUT = "actor_rollout_ref.rollout"
SETTINGS = (
    "trainer.device=cpu",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",  # flash attention is the default
    "actor_rollout_ref.model.use_remove_padding=false",  # needs flash attention
    "actor_rollout_ref.model.enable_gradient_checkpointing=false",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype: fp32, reduce_dtype: fp32, buffer_dtype: fp32}",
    f"{ROLLOUT}.dtype=float32",
    f"{ROLLOUT}.enforce_eager=true",
    f"{ROLLOUT}.free_cache_engine=false",  # vLLM sleeps on GPUs only
    f"+{ROLLOUT}.enable_sleep_mode=false",
    f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes=64",
    f"+{ROLLOUT}.engine_kwargs.vllm.worker_extension_cls={MODULE}.vllm_extension.Extension",
    # vLLM's own trial has a video, for which a tiny model's folder has no processor
    f"+{ROLLOUT}.engine_kwargs.vllm.limit_mm_per_prompt={{image: 16, video: 0}}",
    f"{ROLLOUT}.agent.num_workers=1",
    "reward.num_workers=1",
    "data.dataloader_num_workers=0",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
)


def build_command(folder, nodes, settings=()):
    """Return the command that trains on a cluster of some nodes, one rank each."""
    return [Path(folder) / "run.sh", *SETTINGS, f"trainer.nnodes={nodes}", "trainer.n_gpus_per_node=1", *settings]


def build_environment(address):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    python = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # run.sh calls python3
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": path, "PATH": python, "RAY_ADDRESS": address}


def start_cluster(nodes):
    """Return a ray cluster on this machine. `ray start` twice would do the same, but `ray stop` ends every ray."""
    os.environ |= build_environment("")  # the workers have that of ray
    del os.environ["RAY_ADDRESS"]
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    for _ in range(nodes):
        cluster.add_node(num_cpus=8, num_gpus=1, include_dashboard=False)
    cluster.wait_for_nodes()
    return cluster


def main():
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=1, help="ray nodes with one rank and one vLLM each")
    parser.add_argument("settings", nargs="*", help="settings of verl")
    given = parser.parse_intermixed_args()
    cluster = start_cluster(given.nodes)
    try:
        command = build_command(given.folder, given.nodes, given.settings)
        return subprocess.run(command, env=build_environment(cluster.address)).returncode
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
