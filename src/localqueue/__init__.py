"""A durable queue that starts as one file and grows to a cluster without changing your code."""

from localqueue.queue import PersistentQueue
