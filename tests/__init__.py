"""The tests: a mirror of aiofabric/, plus fixtures/."""
