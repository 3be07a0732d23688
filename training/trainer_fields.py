"""Arguments of TRL's `GRPOConfig` and transformers' `TrainingArguments` that `train` does not pass on, and why.

The libraries take all of them, and a trainer that plays episodes reads only some: a setting that is taken and ignored
is worse than an error. All others are passed on; `tests/training/test_trainer_fields.py` fails if a new version has one
that was not looked at.
"""

from collections.abc import Mapping

# Read by the supervised trainer only, and what GRPO has instead.
_COMPILED = "the engine and the loss call the parts of the model, not the compiled whole"
USED_BY_SFT = {
    "average_tokens_across_devices": "train.loss_type decides what the loss is divided by",
    "neftune_noise_alpha": "noise in the loss alone would make its log-probs differ from the engine's",
    "torch_compile": _COMPILED,
    "torch_compile_backend": _COMPILED,
    "torch_compile_mode": _COMPILED,
}

# Set by viewbox only, and what decides their values.
OWNED = {
    "output_dir": "log.dir",
    "seed": "train.seed",
    "data_seed": "train.seed",
    "report_to": "log.report_to",
    "disable_tqdm": "viewbox, which prints its own progress",
    "remove_unused_columns": "viewbox, which needs the column `task`",
    "resume_from_checkpoint": "the option --resume",
    "local_rank": "the launcher (accelerate launch, torchrun)",
    "use_cache": "viewbox, whose engine has its own cache",
    "model_init_kwargs": "the section model",
    "max_completion_length": "rollout.max_completion_tokens",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "top_k": "rollout.top_k",
    "repetition_penalty": "rollout.repetition_penalty",
    "generation_kwargs": "the section rollout",
    "cache_implementation": "viewbox, whose engine has its own cache (rollout.kv_cache_bytes)",
    "max_tool_calling_iterations": "env.max_turns",
    "reward_weights": "the weights of reward.components",
    "use_vllm": "rollout.engine",
    "vllm_importance_sampling_correction": "train.importance_sampling_cap",
    "vllm_importance_sampling_mode": "viewbox, which truncates the ratio of every token",
    "vllm_importance_sampling_clip_max": "train.importance_sampling_cap",
    "vllm_importance_sampling_clip_min": "viewbox, which sets no lower bound",
    "vllm_importance_sampling_cap": "train.importance_sampling_cap",
}

# By what to use instead: read by nothing in a run of viewbox, or read at a time when it breaks the run.
_REFUSED = {
    "viewbox plays held-out episodes itself: see log.eval_tasks and log.eval_steps": """
        eval_strategy eval_steps eval_delay per_device_eval_batch_size num_generations_eval prediction_loss_only
        eval_on_start eval_do_concat_batches eval_use_gather_object eval_accumulation_steps include_for_metrics
        batch_eval_metrics bf16_full_eval fp16_full_eval""",
    "viewbox keeps the checkpoint with the best held-out reward: see log.eval_steps and log.keep_best": """
        load_best_model_at_end metric_for_best_model greater_is_better""",
    "no trainer reads it; `viewbox train` always trains": "do_train do_eval do_predict",
    "TRL's own use of vLLM leaves out the pictures of tools: see rollout.engine (vllm) and the settings beside it": """
        vllm_mode vllm_model_impl vllm_enable_sleep_mode vllm_structured_outputs_regex vllm_server_base_url
        vllm_server_host vllm_server_port vllm_server_timeout vllm_group_port vllm_gpu_memory_utilization
        vllm_max_model_length vllm_tensor_parallel_size""",
    "transformers' batching takes no pictures: see rollout.engine": """
        use_transformers_continuous_batching transformers_continuous_batching_config use_transformers_paged""",
    "episodes are saved and shown by viewbox: see log.episodes_per_step and `viewbox view`": """
        log_completions log_multimodal num_completions_to_print log_unique_prompts log_completions_hub_repo""",
    "viewbox trains on one device, or on several with DDP; for large models use the section lora": """
        fsdp fsdp_config deepspeed ds3_gather_for_generation parallelism_config""",
    "the loss is viewbox's own and reads no labels": "label_names label_smoothing_factor",
    "viewbox makes the batches; allowed: train.per_device_train_batch_size and train.num_generations": """
        auto_find_batch_size train_sampling_strategy length_column_name accelerator_config""",
    "TRL does not find the layers of a vision-language model; allowed: model.dtype: float32": "cast_lm_head_to_fp32",
    "viewbox renders the chat template itself, without further arguments": "chat_template_kwargs",
    "an episode has one reward; `type: combined` adds up its components": "multi_objective_aggregation",
    "viewbox samples with rollout.top_p and rollout.top_k": "min_p",
    "viewbox pads batches itself": "pad_to_multiple_of",
    "no supported architecture has routed experts": "router_aux_loss_coef",
    "viewbox never runs code from a model's folder": "trust_remote_code",
    "the log-probs of the loss are viewbox's own": "use_liger_kernel liger_kernel_config",
    "see episodes/* in metrics.jsonl": "include_num_input_tokens_seen",
    "viewbox saves a checkpoint at SIGTERM and Ctrl-C by itself": "enable_jit_checkpoint",
    "a resumed run continues exactly where it stopped": "ignore_data_skip",
    "the state of viewbox's callbacks is not in it; see --resume": "restore_callback_states_from_checkpoint",
}
REFUSED: Mapping[str, str] = {name: reason for reason, names in _REFUSED.items() for name in names.split()}


def explain_refusal(name: str, method: str) -> str | None:
    """Return why `train` does not take an argument, as the end of a sentence; None if it takes it, or does not know it.

    >>> explain_refusal("fsdp", "sft")[:43], explain_refusal("beta", "grpo")
    ('cannot be used; viewbox trains on one devic', None)
    """
    if name in OWNED:
        return f"cannot be set here; it is decided by {OWNED[name]}"
    reason = REFUSED.get(name) or (USED_BY_SFT.get(name) if method == "grpo" else None)
    return f"cannot be used; {reason}" if reason else None
