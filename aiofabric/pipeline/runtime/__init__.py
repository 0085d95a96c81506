"""The protocol on endpoints, for every end of a pipeline.

* `end`: what all ends have in common; `connector`: listens and connects for one
* `connection`: one connection, as frames that arrive and leave
* `intake`: an end that gets items; `incoming`: one of its connections; `large_read`: reads a large item;
  `item`: what the program gets
* `memory`: memory of large items, which is used again
"""
