"""verl without a GPU: a stub of its server (`server`), and its own trainer (`python -m tests.support.verl`)."""
