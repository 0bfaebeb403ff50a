"""What may be said about the samples: summaries, drift, the clock's share, ratios, advice.

Pure functions of numpy arrays, and small trackers that remember their last few answers. Nothing
here knows a device, a file or a screen, and nothing raises on poor data: an answer says what it
lacks.
"""
