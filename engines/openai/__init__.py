"""Generators behind HTTP: replies from any OpenAI-compatible endpoint.

`client` has `OpenAIGenerator` and its settings; `token_check` compares its prompts with those of our engine.
"""
