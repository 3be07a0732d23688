"""Saved episodes for people: `episode_page.build_episode_page` says what a page about one episode shows."""
