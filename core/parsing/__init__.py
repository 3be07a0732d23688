"""Reads the text of a model's reply: `reply.parse_reply` returns tool calls, an answer, or what is wrong.

`calls` says which objects are calls, `answer_schema` knows the answer's fields. `strict_json` reads valid replies; for
all others `scan` finds calls and objects, and `lenient_json` repairs them.
"""
