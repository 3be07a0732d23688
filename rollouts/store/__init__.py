"""Episodes on disk, and the folders of runs.

Writes with `writer.EpisodeWriter`, reads with `reader.load`; scores added later are in `columns`. `run_folder` and
`rollout_folder` hold the other files of a run and of a rollout.
"""
