"""What every test shares."""

from __future__ import annotations

from hypothesis import settings

# No deadline: a busy machine may pause any example, and no test here is about absolute time.
settings.register_profile("hybrid_kernels", deadline=None)
settings.load_profile("hybrid_kernels")
