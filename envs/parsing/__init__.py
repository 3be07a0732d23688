"""Reads the text of a model's reply: `reply.parse_reply` returns tool calls, an answer, or what is wrong.

`scan` finds calls and objects, `strict_json` and `lenient_json` read JSON, `answer_schema` knows the answer's fields.
"""
