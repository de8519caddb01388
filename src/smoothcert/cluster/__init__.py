"""Sampling on a Ray cluster. This is the only room that imports ray."""
