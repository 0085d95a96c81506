"""What pyproject.toml cannot say: the extension modules and the one abi3 wheel."""

from pathlib import Path

from cffi.pkgconfig import flags_from_pkgconfig
from setuptools import Extension, setup

headers = flags_from_pkgconfig(["libfabric"])["include_dirs"]
sources = sorted(map(str, Path("aiofabric/_hot").glob("*.c")))
# Nobody else calls what is in these files: their calls of each other are direct, and so are those of the interpreter.
# Of a request among a hundred connections 1.5 % of the instructions, and 80 of 380 misses of the cache of these.
direct = ["-fvisibility=hidden", "-fno-plt"]

setup(
    ext_modules=[
        Extension(
            "aiofabric._hot._hot",
            sources,
            depends=["aiofabric/_hot/hot.h"],
            include_dirs=headers,
            py_limited_api=True,
            extra_compile_args=direct,
        )
    ],
    cffi_modules=["aiofabric/_ffi/build.py:constants", "aiofabric/_ffi/build.py:libfabric"],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
