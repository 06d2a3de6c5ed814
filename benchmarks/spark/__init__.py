"""Queues on Spark: reading, writing, how soon a query has a message, and handlers on executors.

A local master with two cores, which is warm before anything counts. Needs Java and
``localqueue[spark]``; nothing of it is loaded by the other benchmarks.
"""
