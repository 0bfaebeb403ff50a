"""Locking clocks, and giving them back in every end."""
