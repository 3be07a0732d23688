"""Launching a run: settings checked, the run and its folder, resuming, what a person sees. `train.py` starts here."""
