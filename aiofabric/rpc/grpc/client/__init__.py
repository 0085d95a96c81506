"""The client of `aiofabric.rpc.grpc`.

* `rpc`: the runtime's call, and the tasks that wait for it
* `calls`: the call objects that programs hold, of all four kinds; `responses` and `requests`: their streams
* `answers`: calls that interceptors have answered; `interception`: the chain of interceptors; `intercepted`: call objects
  whose interceptors run
* `multicallable`: what a stub's attributes are; `channel`: the channel
"""
