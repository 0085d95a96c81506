from typing import Any

# Plain integers, one for each line of constants.cdef.h.
lib: Any
