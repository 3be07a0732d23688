"""Supervised learning: `trainer.SFTTrainer` trains on saved or scripted episodes.

`episodes` reads them and makes tokens of those that are text, `selection` decides which are kept, and
`rejection_sampling` lets the policy play them itself.
"""
