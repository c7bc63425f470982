"""Control arms: work that no change in this project can touch. If they moved, the machine moved."""

from __future__ import annotations

import numpy as np

from benchmarks.common import Prepared


class NumpyCopy(Prepared):
    """A NumPy copy of 64 MiB between two buffers of its own."""

    warmup_time = 0.2
    repeat = (5, 15, 10.0)

    def prepare(self) -> None:
        self.source = np.random.default_rng(0).integers(0, 255, 64 << 20, np.uint8)
        self.target = np.zeros_like(self.source)

    def time_numpy_copy(self) -> None:
        np.copyto(self.target, self.source)

    time_numpy_copy.version = "1"


class OnnxRuntime(Prepared):
    """ONNX Runtime's MatMulNBits (accuracy level 4) over 16 MiB of packed weights, if it is installed."""

    warmup_time = 0.2
    repeat = (5, 15, 10.0)
    number = 4

    def prepare(self) -> None:
        try:
            import onnx
            import onnxruntime
        except ImportError as error:
            raise NotImplementedError("onnx and onnxruntime are not installed") from error
        n, k = 8192, 4096
        rng = np.random.default_rng(0)
        blocks = k // 32
        packed = rng.integers(0, 255, (n, blocks, 16), np.uint8)
        scales = rng.uniform(0.001, 0.01, n * blocks).astype(np.float32)
        make = onnx.helper
        node = make.make_node(
            "MatMulNBits", ["x", "packed", "scales"], ["y"], domain="com.microsoft",
            K=k, N=n, bits=4, block_size=32, accuracy_level=4,
        )  # fmt: skip
        graph = make.make_graph(
            [node], "one",
            [make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, k])],
            [make.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, n])],
            [onnx.numpy_helper.from_array(packed, "packed"), onnx.numpy_helper.from_array(scales, "scales")],
        )  # fmt: skip
        opsets = [make.make_opsetid("", 18), make.make_opsetid("com.microsoft", 1)]
        model = make.make_model(graph, opset_imports=opsets, ir_version=9)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.feed = {"x": rng.standard_normal((1, k)).astype(np.float32)}

    def time_onnxruntime_matmulnbits(self) -> None:
        self.session.run(None, self.feed)

    time_onnxruntime_matmulnbits.version = "1 level 4, 8192 x 4096, cached"
