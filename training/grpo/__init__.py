"""GRPO on episodes: `trainer.EpisodeGRPOTrainer` shows the stages of a step.

The other files hold its parts: advantages, batches, log-probs, importance sampling, micro-batches.
"""
