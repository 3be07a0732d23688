"""The contract of an environment and the turn loop, with its parser and its prompts."""
