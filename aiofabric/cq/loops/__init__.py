"""The event loop: what the reactor needs of asyncio, uvloop and trio.

* `drivers`: the methods of each loop that the reactor calls, and waiters for results
* `asyncio_layout`: checks how CPython builds asyncio's futures and tasks, on which `_core/queue/wakeups.c` relies
* `coroutines`: marks functions of C as coroutine functions
* `readers`: registers the descriptors that wake the loop

Below layer 5, no other package knows which loop runs. May import: the floors below.
"""
