"""Memory of large items, which is used again: fresh memory costs a page fault for each 4 KiB.

* `freelist`: what is kept for reuse, and how much of it
* `item_pool`: memory that a producer fills; `lent_memory`: memory into which a consumer reads
"""
