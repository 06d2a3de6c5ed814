"""Rows of a DataFrame put into queues, each exactly once."""
