"""What a run tells: lines and metrics.jsonl as it trains, trackers, and at its end a table, a curve and a model card.

`callbacks` holds the alarms too, and the handling of Ctrl-C.
"""
