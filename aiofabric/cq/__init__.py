"""Layer 2: completion queues, operations and the reactor. Only `drivers` knows which event loop runs."""
