class _Constants:
    """Plain integers, one for each line of constants.cdef.h."""

    def __getattr__(self, name: str) -> int: ...

lib: _Constants
