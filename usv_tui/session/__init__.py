"""A session is a stream of records; everything here is a fold over it."""
