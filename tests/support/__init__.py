"""What tests share: environments, players, servers and tiny models. Imported by name; nothing touches `sys.path`."""
