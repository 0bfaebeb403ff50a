"""Checks of the rows and their vocabulary: what may make a number untrue."""
