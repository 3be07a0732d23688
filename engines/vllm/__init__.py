"""Servers that take token ids and pictures, and return ids with their log-probs: nothing is rendered or read twice.

`generator` has `TokenServerGenerator`, which knows no server; the other files and `rollouts.verl` say how one is asked.
"""
