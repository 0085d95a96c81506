"""The server of `aiofabric.rpc.grpc`.

* `rpc`: the runtime's call with the state of its handler; `registry`: the handlers of methods, and the interceptors
* `context`: what handlers get; `threads`: the same for handlers of the synchronous kind, in a pool of threads
* `handling`: runs the handler of one call; `server`: the server
"""
