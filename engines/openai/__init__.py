"""Generators behind HTTP: replies from any OpenAI-compatible endpoint.

`client` has `OpenAIGenerator`, `connection` the requests and their attempts, `http` what needs no request (URLs, keys).
"""
