"""``python -m localqueue.cli`` is ``localqueue``, wherever that was installed."""

from localqueue.cli import main

main()
