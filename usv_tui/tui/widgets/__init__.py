"""The screen's own line-rendering widgets."""
