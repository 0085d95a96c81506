"""What pyproject.toml cannot say: the two cffi modules and the one abi3 wheel."""

from setuptools import setup

setup(
    cffi_modules=["aiofabric/_ffi/build.py:constants", "aiofabric/_ffi/build.py:libfabric"],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
