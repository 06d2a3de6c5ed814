"""Streams of a journal or of a queue's messages, by offsets."""
