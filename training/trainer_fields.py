"""What becomes of every argument of TRL's `GRPOConfig` and transformers' `TrainingArguments`: used, owned or refused.

The libraries take all of them, and a trainer that plays episodes reads only some: a setting that is taken and ignored
is worse than an error. `tests/training/test_trainer_fields.py` fails if a new version has a field that is not here.
"""

from collections.abc import Mapping


def _split(names: str) -> list[str]:
    return names.split()


# Read by both trainers.
USED = frozenset(
    _split("""
    per_device_train_batch_size num_train_epochs max_steps learning_rate lr_scheduler_type lr_scheduler_kwargs
    warmup_steps optim optim_args optim_target_modules weight_decay adam_beta1 adam_beta2 adam_epsilon
    gradient_accumulation_steps max_grad_norm bf16 fp16 tf32
    activation_checkpointing activation_checkpointing_kwargs gradient_checkpointing gradient_checkpointing_kwargs
    torch_empty_cache_steps full_determinism use_cpu debug skip_memory_metrics
    logging_strategy logging_steps logging_first_step log_on_each_node logging_nan_inf_filter log_level
    log_level_replica run_name project trackio_space_id trackio_bucket_id trackio_static_space_id
    save_only_model save_strategy save_steps save_on_each_node save_total_limit
    push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision
    dataloader_drop_last dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers
    dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order
    ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ddp_backend ddp_timeout
    """)
)
# Read by the GRPO trainer only.
USED_BY_GRPO = frozenset(
    _split("""
    disable_dropout shuffle_dataset num_generations generation_batch_size steps_per_generation
    num_iterations beta epsilon epsilon_high delta sapo_temperature_neg sapo_temperature_pos
    vespo_k_pos vespo_lambda_pos vespo_k_neg vespo_lambda_neg importance_sampling_level scale_rewards loss_type
    mask_truncated_completions sync_ref_model ref_model_mixup_alpha ref_model_sync_steps use_bias_correction_kl
    top_entropy_quantile entropy_coef use_adaptive_entropy entropy_coef_min entropy_coef_max entropy_coef_delta
    entropy_target off_policy_mask_threshold
    """)
)
# Read by the supervised trainer only, and what GRPO has instead.
USED_BY_SFT = {
    "average_tokens_across_devices": "train.loss_type decides what the loss is divided by",
    "neftune_noise_alpha": "noise in the loss alone would make its log-probs differ from the engine's",
    "torch_compile": "the engine and the loss call the parts of the model, not the compiled whole",
    "torch_compile_backend": "the engine and the loss call the parts of the model, not the compiled whole",
    "torch_compile_mode": "the engine and the loss call the parts of the model, not the compiled whole",
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

_EVALUATION = "viewbox plays held-out episodes itself: see log.eval_tasks and log.eval_steps"
_BEST = "viewbox keeps the checkpoint with the best held-out reward: see log.eval_steps and log.keep_best"
_VLLM = "TRL's own use of vLLM leaves out the pictures of tools: see rollout.engine (vllm) and the settings beside it"
_TRANSFORMERS = "transformers' batching takes no pictures: see rollout.engine"
_COMPLETIONS = "episodes are saved and shown by viewbox: see log.episodes_per_step and `viewbox view`"
_SHARDED = "viewbox trains on one device, or on several with DDP; for large models use the section lora"
_LABELS = "the loss is viewbox's own and reads no labels"
_BATCHES = "viewbox makes the batches; allowed: train.per_device_train_batch_size and train.num_generations"
_FLAG = "no trainer reads it; `viewbox train` always trains"

# Read by nothing in a run of viewbox, or read at a time when it breaks the run; and what to use instead.
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        _split("""
        eval_strategy eval_steps eval_delay per_device_eval_batch_size num_generations_eval prediction_loss_only
        eval_on_start eval_do_concat_batches eval_use_gather_object eval_accumulation_steps include_for_metrics
        batch_eval_metrics bf16_full_eval fp16_full_eval"""),
        _EVALUATION,
    ),
    **dict.fromkeys(["load_best_model_at_end", "metric_for_best_model", "greater_is_better"], _BEST),
    **dict.fromkeys(["do_train", "do_eval", "do_predict"], _FLAG),
    **dict.fromkeys(
        _split("""vllm_mode vllm_model_impl vllm_enable_sleep_mode vllm_structured_outputs_regex vllm_server_base_url
        vllm_server_host vllm_server_port vllm_server_timeout vllm_group_port vllm_gpu_memory_utilization
        vllm_max_model_length vllm_tensor_parallel_size"""),
        _VLLM,
    ),
    **dict.fromkeys(
        _split("""use_transformers_continuous_batching transformers_continuous_batching_config
        use_transformers_paged"""),
        _TRANSFORMERS,
    ),
    **dict.fromkeys(
        _split("""log_completions log_multimodal num_completions_to_print log_unique_prompts
        log_completions_hub_repo"""),
        _COMPLETIONS,
    ),
    **dict.fromkeys(["fsdp", "fsdp_config", "deepspeed", "ds3_gather_for_generation", "parallelism_config"], _SHARDED),
    **dict.fromkeys(["label_names", "label_smoothing_factor"], _LABELS),
    **dict.fromkeys(
        ["auto_find_batch_size", "train_sampling_strategy", "length_column_name", "accelerator_config"], _BATCHES
    ),
    "cast_lm_head_to_fp32": "TRL does not find the layers of a vision-language model; allowed: model.dtype: float32",
    "chat_template_kwargs": "viewbox renders the chat template itself, without further arguments",
    "multi_objective_aggregation": "an episode has one reward; `type: combined` adds up its components",
    "min_p": "viewbox samples with rollout.top_p and rollout.top_k",
    "pad_to_multiple_of": "viewbox pads batches itself",
    "router_aux_loss_coef": "no supported architecture has routed experts",
    "trust_remote_code": "viewbox never runs code from a model's folder",
    "use_liger_kernel": "the log-probs of the loss are viewbox's own",
    "liger_kernel_config": "the log-probs of the loss are viewbox's own",
    "include_num_input_tokens_seen": "see episodes/* in metrics.jsonl",
    "enable_jit_checkpoint": "viewbox saves a checkpoint at SIGTERM and Ctrl-C by itself",
    "ignore_data_skip": "a resumed run continues exactly where it stopped",
    "restore_callback_states_from_checkpoint": "the state of viewbox's callbacks is not in it; see --resume",
}


def list_used(method: str) -> frozenset[str]:
    """The arguments that `train` takes for a method ("grpo" or "sft").

    >>> "beta" in list_used("grpo"), "beta" in list_used("sft")
    (True, False)
    """
    return USED | (USED_BY_GRPO if method == "grpo" else USED_BY_SFT.keys())


def explain_refusal(name: str, method: str) -> str | None:
    """Why `train` does not take an argument, as the end of a sentence; None if it takes it, or does not know it.

    >>> explain_refusal("fsdp", "sft")[:43]
    'cannot be used; viewbox trains on one devic'
    """
    if name in OWNED:
        return f"cannot be set here; it is decided by {OWNED[name]}"
    reason = REFUSED.get(name) or (USED_BY_SFT.get(name) if method == "grpo" else None)
    return f"cannot be used; {reason}" if reason else None
