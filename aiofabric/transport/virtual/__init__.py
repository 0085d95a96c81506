"""Virtual connections: connected endpoints over a provider that has connectionless ones only.

`multiplexer` is the one connectionless endpoint that carries the connections of a domain, `receive_pools` has its
receives, `connection` is one connection. `oob_socket` and `oob_listener` are the TCP socket beside it, used by
`doorbell` and `address_query`; `protocol` has tags and frames.

May import: ``connected``, ``connectionless`` and what these may import.
"""
