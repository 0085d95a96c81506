"""The RPC protocol without I/O: connections and calls are state machines, frames go in and out as bytes.

docs/reference/rpc-protocol.md is the specification. From the bottom:

* `frames`: kinds, flags, headers; `status`: how a call and a connection end
* `preface`: what both sides announce first; `interning`: tables of names; `metadata`: metadata blocks
* `flow`: credits, reservations and the server's budget
* `calls`: one call's two directions; `client_call` and `server_call` add the roles
* `connection`: the frames of all calls of a connection; `client` and `server` add the roles

No module here knows an event loop or an endpoint. Time is passed in.
"""
