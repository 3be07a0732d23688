"""Supervised warm start: `trainer.SFTTrainer` trains on saved or scripted episodes.

`vision_task.VisionTask` adds losses for a vision tower that starts from random weights.
"""
