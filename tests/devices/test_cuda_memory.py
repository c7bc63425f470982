"""Host pages are registered in segments and given back on every way out, whatever the driver refuses."""

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid_kernels.devices.cuda_memory import PAGE, MappedPages, host_pages, is_file_mapping
from hybrid_kernels.errors import ConditionNotMet, DeviceFailure


class Registrar:
    """Remembers what is registered; refuses the call with the number `refuse`, `interrupt` or `lose`."""

    def __init__(self, refuse=None, interrupt=None, gap=False):
        self.ranges, self.calls, self.refuse, self.interrupt, self.gap = {}, 0, refuse, interrupt, gap

    def register(self, address, nbytes):
        self.calls += 1
        if self.calls == self.refuse:
            raise DeviceFailure("registering failed with CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY")
        assert address % PAGE == 0
        assert nbytes % PAGE == 0
        assert nbytes > 0
        self.ranges[address] = nbytes
        if self.calls == self.interrupt:
            raise KeyboardInterrupt

    def device_pointer(self, address):
        return address + (2**40 + PAGE if self.gap and address != min(self.ranges) else 2**40)

    def unregister(self, address):
        if address not in self.ranges:
            raise DeviceFailure("not registered", "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED")
        del self.ranges[address]


@given(st.integers(1, 9 * PAGE), st.integers(0, 2 * PAGE), st.integers(1, 4 * PAGE))
def test_segments_cover_the_pages_without_overlap(nbytes, skip, segment_bytes):
    """Whatever the start and the segment, whole pages around the bytes are registered, each exactly once."""
    array = host_pages(nbytes + skip)[skip:]
    registrar = Registrar()

    with MappedPages(array, segment_bytes=segment_bytes, registrar=registrar) as pages:
        at = array.ctypes.data // PAGE * PAGE
        for address, size in sorted(registrar.ranges.items()):
            assert address == at
            at += size
        assert array.ctypes.data + nbytes <= at < array.ctypes.data + nbytes + PAGE
        assert pages.pointer == array.ctypes.data + 2**40
        assert pages.segments == len(registrar.ranges)

    assert registrar.ranges == {}


@pytest.mark.parametrize("refused", [1, 2, 4])
def test_a_refused_segment_is_an_error_with_cudas_name(refused):
    """The failure carries CUDA's name, says what to do, and leaves no earlier segment registered."""
    registrar = Registrar(refuse=refused)

    with pytest.raises(DeviceFailure, match=r"in_place: .*CUDA_ERROR_OUT_OF_MEMORY.*ulimit -l") as caught:
        MappedPages(host_pages(4 * PAGE), segment_bytes=PAGE, registrar=registrar)

    assert caught.value.code == "CUDA_ERROR_OUT_OF_MEMORY"
    assert registrar.ranges == {}


@pytest.mark.parametrize("interrupted", [1, 3])
def test_an_interrupt_leaves_nothing_registered(interrupted):
    """Ctrl-C right after a registration took effect still undoes it."""
    registrar = Registrar(interrupt=interrupted)

    with pytest.raises(KeyboardInterrupt):
        MappedPages(host_pages(4 * PAGE), segment_bytes=PAGE, registrar=registrar)

    assert registrar.ranges == {}


def test_segments_that_the_gpu_sees_apart_are_refused():
    """A matrix may span segments, so a gap in the GPU's address space is an error that names the segment to use."""
    registrar = Registrar(gap=True)

    with pytest.raises(ConditionNotMet, match=f"segment of at least {4 * PAGE} bytes"):
        MappedPages(host_pages(4 * PAGE), segment_bytes=2 * PAGE, registrar=registrar)

    assert registrar.ranges == {}


def test_closing_goes_on_after_a_failure():
    """One segment that cannot be given back does not keep the others."""
    registrar = Registrar()
    pages = MappedPages(host_pages(3 * PAGE), segment_bytes=PAGE, registrar=registrar)
    stuck = sorted(registrar.ranges)[1]
    undo = registrar.unregister

    def unregister(address):
        if address == stuck:
            raise DeviceFailure("cannot", "CUDA_ERROR_UNKNOWN")
        undo(address)

    registrar.unregister = unregister
    with pytest.raises(DeviceFailure, match="cannot"):
        pages.close()
    pages.close()

    assert list(registrar.ranges) == [stuck]


def test_file_mappings_are_known_through_views(tmp_path):
    """Views of a memmap or an mmap count as file mappings; arrays in memory do not."""
    path = tmp_path / "weights"
    path.write_bytes(bytes(2 * PAGE))
    mapped = np.memmap(path, np.uint8, "r")
    with open(path, "rb") as file:
        plain = np.frombuffer(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), np.uint8)

    assert is_file_mapping(mapped)
    assert is_file_mapping(mapped[16:].reshape(-1, 16))
    assert is_file_mapping(np.asarray(mapped)[5:])
    assert is_file_mapping(plain[1:])
    assert not is_file_mapping(host_pages(PAGE))
