"""The compiled loops give what ours give; the comparison of times is the benchmark's."""

import shutil
from pathlib import Path

import pytest

from paper.benchmarks import kernels


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_compiled_loops_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "N", 2000)
    built = kernels._built(tmp_path)
    found = [kernels._keys(built), kernels._norms(built, 5), kernels._greedy(built, n=300, k=8, size=20)]
    assert all(float(row["gain"]) > 0 for row in found)
