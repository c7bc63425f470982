"""Only what pyproject.toml cannot say: the C kernel is compiled through cffi when the package is installed."""

from setuptools import setup

setup(cffi_modules=["hybrid_kernels/kernels/build_gemv.py:ffibuilder"])
