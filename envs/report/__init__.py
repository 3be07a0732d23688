"""Reports of images, in one text or in sections, with diagnoses and boxes if they are mapped."""

from .env import Report

__all__ = ["Report"]
