"""Plays tasks with a policy: episodes are generated, stored and scored.

`play.play_many` plays; `engine` and `endpoint` generate replies; `store` keeps episodes; `scoring` and `judge` score
them.
"""
