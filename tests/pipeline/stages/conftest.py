"""The helper process of multiprocessing stays until the end of the program: it is started before leaks are counted."""

from multiprocessing import resource_tracker

resource_tracker.ensure_running()
