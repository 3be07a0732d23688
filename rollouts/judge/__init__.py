"""An LLM as a judge: `reward.JudgeReward` scores an answer over an OpenAI-compatible endpoint.

`reward` builds the request and parses the verdict, `client` sends it, `cache` says where replies are kept.
"""
