"""Stages: a pipeline as a graph of functions, in one process or in several.

* `pipeline`: the graph, as a program writes it; `graph`: its stages; `drawing`: pictures of it
* `plan`: which stage works where; `run`: a whole graph at work; `totals`: its numbers, and the error that ends it
* `work`: one stage at work: its function, its workers, order, errors
* `entry`: a value on its way, until everything that was made of it is finished; `joints`: queues between stages
* `traces`: OpenTelemetry's trace of a value, which goes with it
* `processes`: stages in worker processes
"""
