"""Reading a SQLite file: its plan, its tasks, and the two libraries that run their statements."""
