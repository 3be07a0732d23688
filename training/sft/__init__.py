"""Supervised learning: `trainer.SFTTrainer` trains on saved or scripted episodes.

`episodes` reads them, `conversations` and `transcripts` make tokens of those that are text, and `selection` decides
which are kept. `rejection_sampling` lets the policy play them itself.
"""
