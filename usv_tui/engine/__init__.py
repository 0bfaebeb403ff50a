"""Taking samples."""
