"""Messages: sending them, receiving them, and the receives that stay posted.

`send` and `receive` are methods of endpoints. `inbox` holds the messages that arrived, `pool` and `multi_pool` the
posted receives. `prefix`, `truncation` and `overflow` are pools for providers with special receives. `undelivered`
keeps messages of cancelled receives, `loans` counts the memory that views lend, `batch` sends many messages and waits
once.

May import: ``buffers``, ``handle``, ``route`` and everything below ``transport``.
"""
