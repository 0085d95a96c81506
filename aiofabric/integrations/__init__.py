"""Integrations of aiofabric into other libraries; each needs its library installed."""
