"""Episodes on disk, and the folders of runs.

Writes with `writer.EpisodeWriter`, reads with `reader.load`; scores added later are in `columns`. `run_folder`
holds the other files of a run.
"""
