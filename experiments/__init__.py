"""Reproductions of published tables. Run from a checkout: `python -m experiments NAME`."""
