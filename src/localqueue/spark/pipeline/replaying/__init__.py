"""Replay: the archived messages of a window of time, put back into a queue, each of them once."""
