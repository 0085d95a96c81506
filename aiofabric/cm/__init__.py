"""Layer 3: event queues and connection management (man pages: fi_eq, fi_cm)."""
