"""What is known before a run spends an hour: bad settings, missing tasks, a full disk, held-out tasks trained on.

`preflight.check` checks a config, `dry_run` prints what would be trained, and `outline` says it in a run's first lines.
"""
