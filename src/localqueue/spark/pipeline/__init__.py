"""The data pipeline: the journal of a store as open tables on a lake.

``Pipeline(url, lake).run()`` brings a lake up to date, each event once. The tables are Delta Lake:
``events``, ``attempts``, ``messages``, and what is merged from them. Needs
``pip install "./localqueue[spark]"``.
"""
