"""A drawn CT slice in Hounsfield units, with lesions that only the right window and a zoom show."""

from .env import Phantom, PhantomAnswer

__all__ = ["Phantom", "PhantomAnswer"]
