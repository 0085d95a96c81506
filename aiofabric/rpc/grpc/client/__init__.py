"""The client of `aiofabric.rpc.grpc`.

* `rpc`: the runtime's call, and the tasks that wait for it
* `call`, `calls`: the call objects that programs hold, of all four kinds; `responses`, `requests`: their streams
* `interception`: the chain of interceptors; `intercepted`: call objects whose interceptors run; `answers`: calls that
  interceptors have answered
* `multicallable`: the attributes of a stub; `channel`: the channel
"""
