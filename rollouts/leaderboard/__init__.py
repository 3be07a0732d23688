"""A table of models and environments: `row` reads a run, `board` keeps the file, `render` shows it."""
