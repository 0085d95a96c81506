"""aiofabric under other libraries."""
