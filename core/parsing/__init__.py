"""Reads the text of a model's reply: `reply.parse_reply` returns tool calls, an answer, or what is wrong.

In `reply`, `scan` finds what the text holds and `decide` what that means; `objects` says which objects are calls, which
the answer. `strict_json` reads valid JSON; `lenient_json` repairs what models get wrong.
"""
