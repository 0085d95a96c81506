"""Virtual connections: connected endpoints over a provider that has only connectionless ones.

`multiplexer` is the connectionless endpoint that carries all connections of a domain. `receive_pools` has its receives.
`connection` is one connection. `oob_socket` and `oob_listener` are the TCP sockets beside it, used by `doorbell` and
`address_query`. `protocol` has tags and frames.

May import: ``connected``, ``connectionless`` and what these may import.
"""
