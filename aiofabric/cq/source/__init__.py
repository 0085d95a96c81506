"""A source: one completion queue of one loop, its operations and its waits.

* `source`: the object itself, on top of the native core's `SourceCore`
* `unmatched`: completions that finish no operation, and errors
* `delays`: when the next pass comes if the loop cannot just sleep
* `failed_waits`: ends all waits of a queue that cannot be read any more

May import: ``loops``, ``interfaces`` and what that may import.
"""
