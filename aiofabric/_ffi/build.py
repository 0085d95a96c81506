"""The two extension modules, for setup.py's ``cffi_modules``.

``constants`` holds numbers only and links nothing. ``libfabric`` holds types and calls, and links ``libfabric.so.1``,
which :mod:`aiofabric._ffi.load` finds before the module is imported. Build on the oldest supported headers: a build on
1.17 also runs on 2.x, but not the reverse (the linker uses the newest versioned symbols of fi_getinfo and fi_fabric
that it sees).
"""

from pathlib import Path

from cffi import FFI
from cffi.pkgconfig import flags_from_pkgconfig

here = Path(__file__).resolve().parent
flags = flags_from_pkgconfig(["libfabric"])


def text(name: str) -> str:
    return (here / name).read_text(encoding="utf-8")


constants = FFI()
constants.cdef(text("constants.cdef.h"))
constants.set_source(
    "aiofabric._ffi._constants",
    text("constants.src.c"),
    include_dirs=flags["include_dirs"],
    # The module uses nothing of the C library, but auditwheel tells glibc's wheels from musl's by the linked libraries.
    extra_link_args=["-Wl,--no-as-needed"],
)

libfabric = FFI()
libfabric.cdef(text("libfabric.cdef.h"))
flags["include_dirs"].append(str(here))
flags["libraries"].append("dl")  # a library of its own before glibc 2.34
flags["sources"] = ["aiofabric/_ffi/robust_locks.c", "aiofabric/_ffi/written_bytes.c"]
libfabric.set_source("aiofabric._ffi._libfabric", text("libfabric.src.c"), **flags)  # type: ignore[arg-type]  # the stub types extension keywords as str
