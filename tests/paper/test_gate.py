"""The gate for speed notices what is slower, and exponents are those of the work."""

from pathlib import Path

import numpy as np

from paper.benchmarks import gate, growth


def test_what_is_slower_or_new_is_named() -> None:
    stored = {"a": 2.0, "b": 1.0}
    assert gate.slower({"a": 2.5, "b": 0.5}, stored) == []
    slow, new = gate.slower({"a": 2.7, "c": 1.0}, stored)[::-1]
    assert slow == "a: 2.70, committed 2.00"
    assert new.startswith("c: no committed ratio")


def test_every_ratio_compares_two_things_that_run(tmp_path: Path) -> None:
    names = []
    for what, ours, bare in gate.works(tmp_path, 5000):
        ours(), bare()
        names.append(what)
    assert len(set(names)) == len(names) > 8


def test_exponents_are_those_of_the_work() -> None:
    """Sums of all entries, once and once for each row: n d and n^2 d."""
    once = growth.Operation(lambda X, y: lambda: [np.sin(X).sum() for _ in range(4)], 20_000)
    often = growth.Operation(lambda X, y: lambda: [np.sin(X).sum() for _ in range(len(X) // 100)], 1000)
    in_n, in_d, _ = growth.exponents(once)
    assert abs(in_n - 1.0) < 0.35
    assert abs(in_d - 1.0) < 0.5
    in_n, _, _ = growth.exponents(often)
    assert abs(in_n - 2.0) < 0.5
