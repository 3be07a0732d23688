"""Reads the text of a model's reply: `reply.parse_reply` returns tool calls, an answer, or what is wrong with it.

`scan` finds what the text holds, `reply.decide` what that means; `objects` knows calls and the fields of an answer.
"""
