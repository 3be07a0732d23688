"""The tests; they mirror the rooms of the package."""
