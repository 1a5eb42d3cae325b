"""Builds the two extension modules; everything else is in pyproject.toml."""

from setuptools import setup

setup(
    cffi_modules=["csrc/build_ffi.py:engine", "csrc/build_ffi.py:core"],
    # The modules use Python's stable interface: one wheel serves 3.11 and later.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
