"""Floor 2: queues, operations and the reactor. What needs no loop runs on a driver that is stepped by hand."""
