"""Facts of a GPU are read while it works: an idle link and idle clocks say nothing about the machine."""

import sys
import time
import types

import pytest

from hybrid_kernels.devices.base import Arm
from hybrid_kernels.measure import facts


class Nvml(types.ModuleType):
    """An NVML whose link and clocks depend on whether work is running."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    class NVMLError(Exception):
        """NVML's only exception."""

    def __init__(self, *, idle=(1, 16), loaded=(4, 16), best=(4, 16), reasons=0, processes=1, unsupported=()):
        super().__init__("pynvml")
        self.busy, self.opened = False, 0
        self.idle, self.loaded, self.best = idle, loaded, best
        self.reasons, self.processes, self.unsupported = reasons, processes, unsupported

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in object.__getattribute__(self, "unsupported"):
            raise object.__getattribute__(self, "NVMLError")("Not Supported")
        return object.__getattribute__(self, name)

    def nvmlInit(self):
        self.opened += 1

    def nvmlShutdown(self):
        self.opened -= 1

    def nvmlSystemGetDriverVersion(self):
        return "580.1"

    def nvmlDeviceGetHandleByPciBusId(self, pci_bus_id):
        assert pci_bus_id == "0000:0A:00.0"
        return "handle"

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle):
        return (self.loaded if self.busy else self.idle)[0]

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle):
        return (self.loaded if self.busy else self.idle)[1]

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle):
        return self.best[0]

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle):
        return self.best[1]

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return 1980 if self.busy else 345

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return self.reasons if self.busy else 1

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [None] * self.processes


class Device:
    """As much of a device as facts need."""

    name, pci_bus_id = "cuda", "0000:0A:00.0"

    def facts(self):
        return {"device_name": "Made-up GPU", "versions": {"cuda": "13.0"}}


class Work(Arm):
    """Keeps the made-up GPU busy."""

    def __init__(self, nvml):
        super().__init__()
        self.nvml = nvml

    def _time(self, passes):
        self.nvml.busy = True
        time.sleep(0.05)
        return 0.05

    def close(self):
        self.nvml.busy = False


def read(monkeypatch, busy=True, **machine):
    """Facts of a machine with this NVML, read under load or idle."""
    nvml = Nvml(**machine)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(facts, "LOAD_SECONDS", 0.15)
    found = facts.collect(Device(), [Work(nvml)] if busy else [])
    assert nvml.opened == 0
    return found


@pytest.mark.parametrize(
    ("loaded", "best", "downtrained"),
    [((4, 16), (4, 16), False), ((1, 16), (4, 16), True), ((4, 8), (4, 16), True), ((5, 16), (5, 16), False)],
)
def test_a_link_is_judged_by_what_it_does_under_load(monkeypatch, loaded, best, downtrained):
    """An idle Gen1 that comes up is no fault; a link below device and slot while a copy runs marks the result."""
    found = read(monkeypatch, loaded=loaded, best=best)

    assert (found.link_generation, found.link_width) == loaded
    assert (found.link_generation_max, found.link_width_max) == best
    assert ("downtrained link" in facts.warnings(vars(found))) == downtrained


def test_without_load_nothing_is_said_of_link_and_clocks(monkeypatch):
    """An idle device would show its lowest: the fields stay unknown, and nothing is called downtrained."""
    found = read(monkeypatch, busy=False)

    assert found.link_generation is None
    assert found.sm_clock_mhz is None
    assert found.link_generation_max == 4
    assert found.driver == "580.1"
    assert facts.warnings(vars(found)) == ()


@pytest.mark.parametrize(
    ("bits", "names", "warnings"),
    [
        (0x0, (), ()),
        (0x2, ("applications clocks",), ()),
        (0x6, ("applications clocks", "software power cap"), ("throttled (software power cap)",)),
        (
            0x48,
            ("hardware slowdown", "hardware thermal slowdown"),
            ("throttled (hardware slowdown, hardware thermal slowdown)",),
        ),
    ],
)
def test_throttling_has_reasons(monkeypatch, bits, names, warnings):
    """Reasons are named as NVML means them, in the mark too; a user's own clock setting is no throttling."""
    found = read(monkeypatch, reasons=bits)

    assert found.throttle_reasons == names
    assert facts.warnings(vars(found)) == warnings
    assert found.sm_clock_mhz == 1980


def test_another_process_on_the_device_is_counted(monkeypatch):
    """This process is one of those that NVML lists; any other shares the device."""
    assert read(monkeypatch, processes=1).other_processes == 0
    shared = read(monkeypatch, processes=3)
    assert shared.other_processes == 2
    assert facts.warnings(vars(shared)) == ("shared device",)


def test_what_a_device_does_not_report_stays_unknown(monkeypatch):
    """A query that NVML refuses becomes None, and the others are still there."""
    found = read(
        monkeypatch, unsupported=("nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetComputeRunningProcesses")
    )

    assert found.link_generation is None
    assert found.other_processes is None
    assert found.link_width == 16
    assert facts.warnings(vars(found)) == ()


def test_without_nvml_the_facts_of_the_driver_remain(monkeypatch):
    """Where NVML does not start, the device's own facts and versions are kept."""
    found = read(monkeypatch, unsupported=("nvmlInit",))

    assert found.device_name == "Made-up GPU"
    assert found.versions["cuda"] == "13.0"
    assert found.driver is None
