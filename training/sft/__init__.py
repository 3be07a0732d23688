"""Supervised learning: `trainer.SFTTrainer` trains on saved or scripted episodes.

`selection` decides which episodes, `rejection_sampling` lets the policy play them itself, and `vision_task.VisionTask`
adds losses for a vision tower that starts from random weights.
"""
