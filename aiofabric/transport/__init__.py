"""Layer 4: endpoints and data transfer, in packages.

From the ground up:

1. ``interfaces``, ``tags``, ``buffers``, ``peer_access``;
2. ``route``, the way to one peer;
3. ``handle``, the object that the reactor and the parents hold of an endpoint, and ``orderly_end``;
4. ``messages``;
5. ``endpoint``, ``exclusions``, ``rma``, ``workarounds``;
6. ``tagged``, ``opening``;
7. ``connectionless``, ``connected``;
8. ``virtual``;
9. ``connect``.

May import: the floors below. A room may import the rooms before it; ``tests/test_floors.py`` has the exact order.
"""
