"""What cffi builds from build_gemv.py, whose cdef declares the functions of `lib`."""

from typing import Any

ffi: Any
lib: Any
