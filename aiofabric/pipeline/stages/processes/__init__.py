"""Stages in worker processes, joined by push and pull.

* `remote`: how values go from process to process; `board`: where the workers listen
* `at_work`: one stage in one place, with its ends of pipelines; `worker`: the main function of a process
* `kept`: a worker that is started again after it has died; `local_process`, `dask_actor`: workers are one of these
"""
