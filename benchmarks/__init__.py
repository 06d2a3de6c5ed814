"""How fast it is, one file per question, always as a ratio of two things measured in one run.

``python -m benchmarks --help`` says how to run them, docs/benchmarks.md what they showed.
"""
