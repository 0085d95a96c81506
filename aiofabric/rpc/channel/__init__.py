"""The client's channel: addresses, connections to them, and the calls that use these.

* `service_config`: what a service config says of methods; `retry`: whether a failed attempt of a call is repeated
* `resolution`: resolves the target, again after a failure; `states`: the state of a channel, and waiting for a change
* `subchannel`: one address and its connection; `policies`: which connection a call takes
* `call`: a call with all its attempts; `channel`: all of this together
"""
