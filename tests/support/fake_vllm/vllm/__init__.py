"""Stands for vLLM where viewbox starts a server: see `entrypoints/openai/api_server.py`."""
