"""Workarounds of defects in providers that completions show."""
