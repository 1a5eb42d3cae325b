"""Builds the two extension modules; everything else is in pyproject.toml."""

from setuptools import setup

setup(cffi_modules=["csrc/build_ffi.py:engine", "csrc/build_ffi.py:core"])
