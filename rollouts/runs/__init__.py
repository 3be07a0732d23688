"""Folders of runs as a whole: `listing` shows their figures, `pack` makes one file of a run, `unpack` reads it."""
