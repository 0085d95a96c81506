"""Layer 2: completion queues, operations and the reactor.

From the ground up:

1. ``loops``, the event loop; ``operation``, ``slots`` and ``polling``;
2. ``queue``, a completion queue of libfabric;
3. ``interfaces``: the parts of queues that a source needs;
4. ``source``: reads one queue and dispatches its completions;
5. ``submission``, the operations of one direction of an endpoint; ``reactor``, the sources of one loop;
6. ``counter``; ``unnamed_failures``, a defect of shm that completions show.

May import: the floors below. ``tests/test_floors.py`` has the exact order.
"""
