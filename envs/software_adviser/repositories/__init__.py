"""What `repo_info_batch` knows of GitHub repositories: a recorded snapshot, live facts if a config says so, and the
sentences of the catalogue."""
