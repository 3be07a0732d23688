"""The local engine: continuous batching of multi-turn episodes with images on one HuggingFace model (needs torch).

`engine` has `HFGenerator`, `chat_tokens` `ChatTokens`, `loading` `open_policy`; `docs/engine.md` explains the rest.
"""
