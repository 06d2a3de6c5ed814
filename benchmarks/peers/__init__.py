"""Other queues beside this one, each in a process of its own and used by its public calls only."""
