"""verl without a GPU: a stub of its server (`server`), and its own trainer on this machine (`python -m tests.support.verl`)."""
