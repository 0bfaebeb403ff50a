"""Other people's benchmark scripts, as they are: a file for each library that they time with."""
