"""Generators behind HTTP: replies from any OpenAI-compatible endpoint.

`client` has `OpenAIGenerator` and `EndpointError`; `http` has what needs no request (URLs, keys, error bodies).
"""
