"""Arithmetic over named quantities that are ranges: `0.6 * 8`, `resident / max(cold, 1)`. Nothing else is evaluated.

Used for cross-checks and for figures that are computed from others. An expression is parsed by Python's own parser and
walked: numbers, names, + - * /, parentheses, min() and max(). Anything else is refused, so a text file cannot run code.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass

from hybrid_kernels.errors import BadInput

MAX_LENGTH = 1000  # characters; deeper nesting than this allows cannot exhaust the stack


@dataclass(frozen=True)
class Interval:
    """A quantity known to lie in low..high (both included); a plain number has low == high."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The geometric mean of two positive ends (factors are what is compared), else the arithmetic one."""
        if self.low == self.high:
            return self.low
        if self.low > 0:
            return math.sqrt(self.low * self.high)
        return (self.low + self.high) / 2

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Interval) -> Interval:
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(ends), max(ends))

    def __truediv__(self, other: Interval) -> Interval:
        if other.low <= 0 <= other.high:
            raise ZeroDivisionError
        ends = [a / b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(ends), max(ends))


def _parse(expression: str) -> ast.expr:
    if len(expression) > MAX_LENGTH:
        raise BadInput(f"expression of {len(expression)} characters is too long; {MAX_LENGTH} are enough")
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f"{expression!r} is not arithmetic; write for example 0.6 * decode_rate") from error


def names(expression: str) -> tuple[str, ...]:
    """The quantities that `expression` names, in order of appearance. BadInput when it is not arithmetic."""
    found: list[str] = []

    def visit(node: ast.expr) -> None:
        match node:
            case ast.Name(id=name):
                if name not in found:
                    found.append(name)
            case ast.Constant(value=bool()):
                raise BadInput(f"{expression!r}: {node.value!r} is not a number")
            case ast.Constant(value=int() | float()):
                pass
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
                visit(left)
                visit(right)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                visit(operand)
            case ast.Call(func=ast.Name(id="min" | "max"), args=[_, *_] as args, keywords=[]):
                for arg in args:
                    visit(arg)
            case _:
                part = ast.unparse(node)
                raise BadInput(f"{expression!r}: {part!r} is not allowed; use numbers, names, + - * / ( ) min max")

    visit(_parse(expression))
    return tuple(found)


def evaluate(expression: str, values: Mapping[str, Interval]) -> Interval:
    """The range of `expression` when each name takes any value of its range, each occurrence on its own.

    BadInput for anything but arithmetic, for a name that `values` lacks, and for a division by a range that holds zero.
    """
    missing = [name for name in names(expression) if name not in values]
    if missing:
        raise BadInput(f"{expression!r}: nothing is called {missing[0]!r}; known here: {', '.join(sorted(values))}")

    def walk(node: ast.expr) -> Interval:
        match node:
            case ast.Name(id=name):
                return values[name]
            case ast.Constant(value=int() | float() as number):
                return Interval(float(number), float(number))
            case ast.UnaryOp(op=op, operand=operand):
                inner = walk(operand)
                return Interval(-inner.high, -inner.low) if isinstance(op, ast.USub) else inner
            case ast.BinOp(left=left, op=op, right=right):
                a, b = walk(left), walk(right)
                if isinstance(op, ast.Add):
                    return a + b
                if isinstance(op, ast.Sub):
                    return a - b
                return a * b if isinstance(op, ast.Mult) else a / b
            case ast.Call(func=ast.Name(id=name), args=args):
                parts = [walk(arg) for arg in args]
                pick = min if name == "min" else max
                return Interval(pick(p.low for p in parts), pick(p.high for p in parts))
            case _:
                raise AssertionError(ast.dump(node))  # names() has refused it

    try:
        result = walk(_parse(expression))
    except ZeroDivisionError:
        raise BadInput(f"{expression!r}: divides by a range that holds zero") from None
    except OverflowError:
        raise BadInput(f"{expression!r}: a number is too large") from None
    if not (math.isfinite(result.low) and math.isfinite(result.high)):
        raise BadInput(f"{expression!r}: the result is not a finite number")
    return result
