"""Who answers: generators of replies. `hf` runs a local model, `openai` asks an endpoint, `vllm` a server of tokens."""
