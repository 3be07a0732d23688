"""Search in the literature (PubMed) and among its figures (Open-i): live, or from a recorded snapshot.

`records.py` is what every source returns: articles, found images, and the queries for them. A source answers queries:
the live clients, or a snapshot in one file. The kind of specialist that declares the tools turns answers into words.
"""
