"""The tests: the same folders as aiofabric/, and fixtures/."""
