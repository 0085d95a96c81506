"""Messages: sending them, receiving them, and the receives that stay posted.

`send` and `receive` are what endpoints can do. `inbox` holds what arrived, `pool` and `multi_pool` the posted receives,
`prefix`, `truncation` and `overflow` are pools for providers that treat messages in a way of their own. `undelivered`
keeps messages of cancelled receives, `loans` what views lend, `batch` sends many and waits once.

May import: ``buffers``, ``handle``, ``route`` and everything below ``transport``.
"""
