"""The RPC runtime: the protocol on endpoints of a loop.

* `transport`: one connection: an endpoint and the state machine of the protocol
* `deadlines`: one timer for all deadlines of a loop; `tasks`: the tasks of handlers, on asyncio and trio
* `memory_reclaim`: which calls end when a server is out of memory
* `server`: listeners, connections and calls of a server
"""
