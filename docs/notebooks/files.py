# %% [markdown]
# # Files larger than memory: choose rows block by block
#
# You have files that do not fit into memory. `select` reads them a few times, block by block, and keeps the chosen rows with their weights. Here the files are small, so that the notebook runs in seconds.
# In a clone: `pip install ".[io,plots]"`.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coresift import Coreset, open_rows, select

# %% [markdown]
# ## The files
#
# Four Parquet files with two columns of numbers and a label that is `rare` in one row of fifty.

# %%
rng = np.random.default_rng(0)
Path("shards").mkdir()
for i in range(4):
    rare = rng.random(5000) < 0.02
    x = rng.normal(size=(5000, 2)) + np.where(rare, 6, 0)[:, None]
    table = {
        "a": x[:, 0],
        "b": x[:, 1],
        "kind": np.where(rare, "rare", "usual"),
    }
    pq.write_table(pa.table(table), f"shards/part-{i}.parquet")
rows = open_rows("shards", label="kind")
print(f"{rows.n:,} rows, {rows.d} columns")

# %% [markdown]
# ## Choose
#
# 2 % of the rows, drawn within each class, at least 50 of each. The result is small: row numbers, weights, labels.

# %%
chosen = select(
    "shards",
    "2%",
    label="kind",
    per_class=True,
    min_per_class=50,
    random_state=0,
)
core = chosen.coreset
print(f"{core.size} of {core.n_samples:,} rows, method {core.method}")
core.save("core.parquet")
assert Coreset.load("core.parquet") == core

# %% [markdown]
# The same seed chooses the same rows with two workers.

# %%
again = select(
    "shards",
    "2%",
    label="kind",
    per_class=True,
    min_per_class=50,
    random_state=0,
    workers=2,
)
print(np.array_equal(again.coreset.indices, core.indices))

# %% [markdown]
# ## Look at it
#
# Areas are weights. A rare row stands for a few others, a usual one for dozens.

# %%
everything = pa.concat_tables(
    [pq.read_table(path) for path in sorted(Path("shards").glob("*.parquet"))]
)
picked = everything.take(core.indices)
kinds = picked["kind"].to_numpy(zero_copy_only=False)
for kind in ("rare", "usual"):
    n_all = np.sum(everything["kind"].to_numpy(zero_copy_only=False) == kind)
    weights = core.weights[kinds == kind]
    print(
        f"{kind}: {len(weights)} rows of {n_all} chosen, their weights sum to {weights.sum():.0f}"
    )

# %%
figure, ax = plt.subplots(figsize=(5.6, 3.4), layout="constrained")
ax.plot(
    everything["a"],
    everything["b"],
    ".",
    color="#DDDDDD",
    markersize=2,
    zorder=0,
    label="all rows",
)
for kind, color in (("usual", "#0072B2"), ("rare", "#D55E00")):
    mask = kinds == kind
    x = picked.filter(pa.array(mask))
    ax.scatter(
        x["a"],
        x["b"],
        s=core.weights[mask] / 2,
        color=color,
        alpha=0.6,
        linewidth=0,
        label=f"chosen, {kind}",
    )
ax.set(xlabel="a", ylabel="b")
ax.legend(frameon=False, loc="upper left")

# %% [markdown]
# ## How good is it?
#
# The certificate bounds the relative error of a sum of Gaussians over the rows, for every query in the ball of the data. It is a proof, not an estimate.

# %% numbers may differ by 30 %
print(core.certify(chosen.rows))

# %% [markdown]
# ## From here
#
# [Choose from a folder of Parquet files](../how-to/parquet.md) has the command line, rows written to a new file, and options; [Data of any size](../scale.md) says what a pass reads and keeps;
# [A cluster](../cluster.md) runs the same passes on many machines.
