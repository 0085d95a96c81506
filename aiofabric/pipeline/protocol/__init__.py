"""The protocol of pipelines, without I/O: what both sides say, and who gets which item.

* `hello`: what each side announces when it connects
* `frames`: the bytes of items, acknowledgements and the end
* `groups`: items that were sent together, until they are acknowledged
* `sharing`: which consumer gets the next items, and what comes back from one that has left
* `topics`: the frames of publications; `publishing`: which subscriber gets which, and what is dropped
* `receipts`: what a consumer has received and acknowledged

Imports nothing of aiofabric, so tests run it without a fabric.
"""
