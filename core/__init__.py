"""core: say in a line what this room is for."""
