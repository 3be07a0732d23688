"""Runs that leave and come in: episodes selected into a new run, written for other tools, and read from them."""
