"""Supervised learning: `trainer.SFTTrainer` trains on saved or scripted episodes.

`episodes` reads them and makes tokens of those that are text, and `selection` decides which are kept.
"""
