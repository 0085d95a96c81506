"""aiofabric under other libraries: a few lines each, and each needs its library installed."""
