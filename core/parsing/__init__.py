"""Reads the text of a model's reply: `reply.parse_reply` returns tool calls, an answer, or what is wrong.

`scan` finds what the text holds, `reply.decide` what that means. `calls` says which objects are calls, `answer_schema`
knows the answer's fields. `strict_json` reads valid JSON; `lenient_json` repairs what models get wrong.
"""
