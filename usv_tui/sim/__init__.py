"""The simulated GPU: ground truth for everything."""
