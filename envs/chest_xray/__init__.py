"""Chest radiographs, drawn or from data, read with a viewer's tools and specialist models."""

from viewbox.envs.chest_xray.env import ChestXray

__all__ = ["ChestXray"]
