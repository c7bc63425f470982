"""The float64 oracle against ONNX Runtime's own operator, and against arithmetic done by hand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from hybrid_kernels.errors import BadInput
from hybrid_kernels.layout import reference
from hybrid_kernels.layout.weights import BLOCKS, Int4Weights


def matmul_nbits(weights: Int4Weights, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """y as ONNX Runtime's MatMulNBits computes it at accuracy level 0 (float32 arithmetic)."""
    stored = {"B": weights.packed, "scales": weights.scales.astype(np.float32)}
    if weights.zero_points is not None:
        stored["zero_points"] = weights.zero_points
    node = helper.make_node(
        "MatMulNBits", ["A", *stored], ["Y"], domain="com.microsoft",
        K=weights.k, N=weights.n, bits=4, block_size=weights.block, accuracy_level=0,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "one_projection",
        [helper.make_tensor_value_info("A", TensorProto.FLOAT, [1, weights.k])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, weights.n])],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in stored.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=9
    )
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"A": x[None, :]})
    return np.asarray(y, np.float32)[0]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("zero_points", [True, False])
@pytest.mark.parametrize("k", [128, 1024, 200, 131, 96])
def test_agrees_with_onnx_runtime(block: int, zero_points: bool, k: int) -> None:
    """Every block size, with and without zero points, K a multiple of the block or not: the same y as MatMulNBits."""
    weights = Int4Weights.random(37, k, block, seed=k + block, zero_points=zero_points)
    x = np.random.default_rng(k).normal(size=k).astype(np.float32)

    expected = matmul_nbits(weights, x)

    actual = reference.gemv(weights, x)
    assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max()


def test_one_row_by_hand() -> None:
    """y = 0.5 * (1 * (3 - 8) + 2 * (15 - 8)) for two codes of one block without zero points."""
    packed = np.zeros((1, 1, 8), np.uint8)
    packed[0, 0, 0] = 3 | 15 << 4
    weights = Int4Weights.from_arrays(packed, np.full((1, 1), 0.5, np.float16), k=2)

    assert reference.gemv(weights, [1, 2]).tolist() == [4.5]


def test_zero_points_alternate_nibbles() -> None:
    """Even blocks take the low nibble of a zero-point byte, odd blocks the high one."""
    packed = np.zeros((1, 2, 8), np.uint8)  # every code 0
    scales = np.ones((1, 2), np.float32)
    weights = Int4Weights.from_arrays(packed, scales, np.array([[1 | 2 << 4]], np.uint8))

    assert reference.gemv(weights, np.ones(32)).tolist() == [-16.0 - 32.0]


def test_rows_in_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix worked through in many chunks gives what one product gives."""
    weights = Int4Weights.random(11, 50, 16)
    x = np.random.default_rng(1).normal(size=50)
    whole = weights.dequantize(np.float64) @ x

    monkeypatch.setattr(reference, "_CHUNK", 100)

    np.testing.assert_allclose(reference.gemv(weights, x), whole, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones(49), r"^x: shape \(49,\); it must be \[50\]"),
        (np.ones((1, 50)), r"^x: shape \(1, 50\)"),
        (np.full(50, np.nan), "^x: holds NaN"),
        (np.full(50, "a"), "^x: dtype <U1"),
        (np.ones(50, complex), "^x: dtype complex128"),
    ],
)
def test_an_activation_that_does_not_fit_is_refused(x: npt.NDArray[np.float64], message: str) -> None:
    """x of another length, dimension or kind, or not finite: BadInput that names x."""
    with pytest.raises(BadInput, match=message):
        reference.gemv(Int4Weights.random(3, 50, 16), x)
