"""What compiled code would gain where NumPy or Python set the pace: small kernels in C, beside what we run.

The C compiler of the machine builds them with all it has (``-O3 -march=native -ffast-math``), as a wheel for many
machines could not. Both sides give the same result, which is checked.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from coresift.core.draw import keys_below
from coresift.core.points import squared_norms
from coresift.selection.facility import graph_facilities, neighbour_graph

from .measure import Table, seconds, section, table

N = 1_000_000
SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

void keys(const uint64_t *words, const double *scores, double *out, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = -log(((double)(int64_t)(words[i] >> 12) + 0.5) * 0x1p-52) / scores[i];
}

void sq_norms(const double *X, const double *c, double *out, int64_t n, int64_t d) {
    for (int64_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < d; j++) { double z = X[i * d + j] - c[j]; sum += z * z; }
        out[i] = sum;
    }
}

typedef struct { double gain; int32_t row; } Entry;
static int above(Entry a, Entry b) { return a.gain > b.gain || (a.gain == b.gain && a.row < b.row); }
static void sift(Entry *h, int64_t n, int64_t i) {
    for (;;) {
        int64_t l = 2 * i + 1, best = i;
        if (l < n && above(h[l], h[best])) best = l;
        if (l + 1 < n && above(h[l + 1], h[best])) best = l + 1;
        if (best == i) return;
        Entry t = h[i]; h[i] = h[best]; h[best] = t; i = best;
    }
}
void greedy(const int64_t *start, const int32_t *served, const float *gap, float *nearest, int64_t n,
            int64_t size, int64_t *picks) {
    Entry *h = malloc(n * sizeof(Entry));
    for (int64_t j = 0; j < n; j++) {
        double g = 0.0;
        for (int64_t e = start[j]; e < start[j + 1]; e++) { float z = nearest[served[e]] - gap[e]; if (z > 0) g += z; }
        h[j] = (Entry){g, (int32_t)j};
    }
    for (int64_t i = n / 2; i-- > 0;) sift(h, n, i);
    int64_t left = n;
    for (int64_t k = 0; k < size;) {
        int32_t row = h[0].row; double g = 0.0;
        for (int64_t e = start[row]; e < start[row + 1]; e++) {
            float z = nearest[served[e]] - gap[e]; if (z > 0) g += z;
        }
        h[0].gain = g; sift(h, left, 0);
        if (h[0].row != row) continue;
        picks[k++] = row;
        for (int64_t e = start[row]; e < start[row + 1]; e++)
            if (gap[e] < nearest[served[e]]) nearest[served[e]] = gap[e];
        h[0] = h[--left]; sift(h, left, 0);
    }
    free(h);
}
"""


def _built(folder: Path) -> Any:
    (folder / "kernels.c").write_text(SOURCE, encoding="utf-8")
    flags = ["-O3", "-march=native", "-ffast-math", "-fPIC"]
    subprocess.run(["cc", *flags, "-c", "kernels.c"], cwd=folder, check=True)
    # linked without these flags: the library would switch off subnormal numbers for the whole process
    subprocess.run(["cc", "-shared", "kernels.o", "-o", "kernels.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernels.so"))


def _pointer(array: np.ndarray) -> Any:
    assert array.flags.c_contiguous
    return array.ctypes.data_as(ctypes.c_void_p)


def _count(n: int) -> Any:
    return ctypes.c_int64(n)


def loops() -> Table | None:
    """Compare three loops; None without a C compiler."""
    if shutil.which("cc") is None:
        return None
    with TemporaryDirectory() as name:
        built = _built(Path(name))
        rows = [_keys(built), *(_norms(built, d) for d in (16, 64)), _greedy(built)]
    return table(
        "kernels", "Processor time, the least of seven. C: the same loop, compiled for this machine, one thread.", rows
    )


def _row(what: str, ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int = 7) -> dict[str, str]:
    here, there = seconds(ours, theirs, repeats=repeats)
    times = {"NumPy and Python": f"{1e3 * here:.1f} ms", "C": f"{1e3 * there:.1f} ms"}
    return {"loop": what, **times, "gain": f"{here / there:.1f}"}


def _keys(built: Any) -> dict[str, str]:
    scores, out = np.random.default_rng(0).random(N) + 0.1, np.empty(N)

    def compiled() -> np.ndarray:
        words = np.random.Philox(key=7).random_raw(N)
        built.keys(_pointer(words), _pointer(scores), _pointer(out), _count(N))
        return out

    np.testing.assert_allclose(compiled(), keys_below(scores, 7, 0, np.inf)[1], rtol=1e-12)
    return _row(f"keys of {N:,} rows, random words included", lambda: keys_below(scores, 7, 0, np.inf)[1], compiled)


def _norms(built: Any, d: int) -> dict[str, str]:
    X = np.random.default_rng(0).standard_normal((N // 4, d))
    center, out = X.mean(axis=0), np.empty(len(X))

    def blockwise() -> np.ndarray:
        step = max(1, (1 << 22) // (8 * d))  # as the passes do: blocks that stay in the cache
        parts = (X[at : at + step] for at in range(0, len(X), step))
        return np.concatenate([squared_norms(part) - 2.0 * (part @ center) for part in parts]) + center @ center

    def compiled() -> np.ndarray:
        built.sq_norms(_pointer(X), _pointer(center), _pointer(out), _count(len(X)), _count(d))
        return out

    np.testing.assert_allclose(compiled(), blockwise(), rtol=1e-9)
    return _row(f"squared distances of {len(X):,} x {d} from the mean", blockwise, compiled)


def _greedy(built: Any, n: int = 20_000, k: int = 32, size: int = 2000) -> dict[str, str]:
    from scipy import sparse

    rng = np.random.default_rng(0)
    near, far = neighbour_graph(rng.standard_normal((n, 16)), k, rng)
    weights, nothing = np.ones(n), np.zeros(0, dtype=np.int64)

    def compiled() -> np.ndarray:
        ends = np.arange(0, n * k + 1, k)
        graph = sparse.csr_array((far.ravel(), near.ravel(), ends), shape=(n, n)).tocsc()
        starts, served = graph.indptr.astype(np.int64), graph.indices.astype(np.int32)
        picks, nearest = np.empty(size, dtype=np.int64), far.max(axis=1)
        arrays = map(_pointer, (starts, served, graph.data.astype(np.float32), nearest))
        built.greedy(*arrays, _count(n), _count(size), _pointer(picks))
        return picks

    ours = graph_facilities(near, far, size, weights, nothing)
    shared = len(np.intersect1d(ours, compiled()))
    assert shared > 0.95 * size, shared  # sums in another order break ties in another way
    what = f"lazy greedy, {size:,} facilities of {n:,} rows with {k} neighbours"
    return _row(what, lambda: graph_facilities(near, far, size, weights, nothing), compiled, repeats=3)


kernels = section("kernels", "Measure what compiled loops would gain.", loops)
