"""The library's face: the API of `usv`."""
