"""How a call is timed: the wall clock, device events, graphs, phases, the cache."""
