"""Chest radiographs, drawn or from data, read with specialist models as tools."""
