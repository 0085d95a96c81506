"""Layer 2: completion queues, operations and the reactor. The only layer that depends on the kind of event loop."""
