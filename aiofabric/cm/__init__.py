"""Layer 3: event queues and connection management (man pages: fi_eq, fi_cm).

From the ground up:

1. ``events``; ``preface``: the data that two endpoints of aiofabric exchange before the first message;
   ``foreign_clients``, which are logged;
2. ``queue``, an event queue of libfabric;
3. ``handshake``: the states of one connection until it is established;
4. ``requests``: connection requests, until the program answers them;
5. ``listener``, what programs hold; ``accept_predicate``; ``workarounds``;
6. ``reservation``: a listening address that is not listening yet; ``acceptor``, the accept loop of servers;
7. ``passive``: the passive endpoint;
8. ``clients``: the addresses of a target, and the delays between attempts to connect.

May import: the floors below. ``tests/test_floors.py`` has the exact order.
"""
