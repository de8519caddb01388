"""Checks of the package as it is distributed. They are part of the checkout and not of the package."""
