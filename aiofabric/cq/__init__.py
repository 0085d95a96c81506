"""Floor 2: completion queues, operations and the reactor. The only floor that knows which event loop runs."""
