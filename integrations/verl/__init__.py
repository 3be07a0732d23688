"""Training with verl: its agent loop plays viewbox episodes, and `export` writes what a run of it needs.

Only `agent_loop` needs verl.
"""
