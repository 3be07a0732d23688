"""Images: pixels of any file at their native depth, and views of them with an exact map back to the original.

`files.open_image` reads a file as a `Source` (a slice of a `Volume`), `View` shows a part of it, and `ImageRef` names a
picture by the hash of its pixels. Nothing in this room knows of language models.
"""
