"""Chest radiographs, drawn or from data, read with a viewer's tools and specialist models."""

from .env import ChestXray

__all__ = ["ChestXray"]
