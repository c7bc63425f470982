"""One decode step: step time by schedule and resident fraction, beside what the sweep of the same run predicts."""

from __future__ import annotations

from benchmarks.common import DEVICES, Prepared, device_or_skip
from hybrid_kernels.errors import BadInput
from hybrid_kernels.judge.plan import at_fraction
from hybrid_kernels.layout import models
from hybrid_kernels.measure import walk

MODELS = {"cpu": "qwen2.5-0.5b", "cuda": "qwen2.5-14b"}


class Step(Prepared):
    """Seconds of one decode step, GEMV time alone, on the device's clock; bits checked before it is timed."""

    params = [DEVICES, ["serial", "overlapped"], [1.0, 0.93, 0.5]]
    param_names = ["device", "schedule", "fraction"]
    repeat = (5, 11, 20.0)
    number = 1
    warmup_time = 0.3
    timeout = 600

    def prepare(self, device: str, schedule: str, fraction: float) -> None:
        self.device = device_or_skip(device)
        self.elapsed = 0.0
        self.timer = lambda: self.elapsed
        tensors = walk.tensors_of(models.find(MODELS[device]))
        self.pool = walk.Tensors(self.device, tensors)
        form = "graph" if "graph" in self.device.forms else "eager"
        try:
            placed = self.pool.place(at_fraction(tensors, fraction))
            self.arm = self.device.walk_arm(placed, self.pool.start, schedule, form)
        except BadInput as error:  # commits before the device had walks
            raise NotImplementedError(str(error)) from error
        self.arm.run(1)
        output = self.arm.output()
        if output is None or output.tobytes() != self.pool.truth().tobytes():
            raise AssertionError("the walk's output differs from the all-resident walk")

    def time_step(self, device: str, schedule: str, fraction: float) -> None:
        self.elapsed += self.arm.run(1)

    time_step.version = "3 every projection once, the largest tensors cold and late, device clock"
