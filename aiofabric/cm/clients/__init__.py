"""The parts of clients that connect again.

* `targets`: the addresses that a text stands for
* `backoff`: the delays between attempts

May import: the floors below.
"""
