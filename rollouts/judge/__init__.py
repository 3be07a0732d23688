"""An LLM as a judge: `reward.JudgeReward` scores an answer over an OpenAI-compatible endpoint.

`prompt` builds the request and parses the verdict, `client` sends it, `cache` stores replies.
"""
