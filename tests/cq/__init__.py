"""Queues, operations and the reactor (floor 2). Tests that need no event loop use a driver that they step."""
