"""Compacted topics: the latest value of each key of a queue, as a table that is kept up to date."""
