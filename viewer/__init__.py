"""Saved episodes for people: `episode_page.build_episode_page` says what a page about one episode shows.

`pictures` finds what each picture shows and the marks on it (`marks`). `unplayed` makes episodes of tasks that nobody
has played. `sources` finds the sets of episodes that a page is about, with a row for each episode. `page` is the HTML
with its program (`static/`), which `report` writes as one file and `server` serves on this machine.
"""
