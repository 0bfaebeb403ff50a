"""What a benchmark file says, and how it is found."""
