# %% [markdown]
# # A training loop: one line around your loader
#
# You have a PyTorch loop. `sift` goes around its loader, looks at the data and at the first epoch, and decides what the later epochs see.
# In a clone: `pip install ".[plots,train]"`.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from coresift.training import build_model, sift

torch.set_num_threads(1)

# %% [markdown]
# ## The data
#
# Digits as logs and crawls have them: of the 1,200 images to train on, 840 are slightly changed copies of the others, and a few images have most of the copies.

# %%
rng = np.random.default_rng(0)
X, y = load_digits(return_X_y=True)
order = rng.permutation(len(X))
train, test = order[:1200], order[1200:]
kept = train[:360]
shares = 1 / np.arange(1, 361)
rows = np.concatenate((kept, rng.choice(kept, 840, p=shares / shares.sum())))
noisy = X[rows] / 16 + rng.normal(scale=0.001, size=(1200, 64))
X_train, y_train = (
    torch.tensor(noisy, dtype=torch.float32),
    torch.tensor(y[rows]),
)
X_test, y_test = (
    torch.tensor(X[test] / 16, dtype=torch.float32),
    torch.tensor(y[test]),
)
print(
    f"{len(X_train)} rows, {len(np.unique(rows))} different images; {len(X_test)} for the test"
)

# %% [markdown]
# ## The loop
#
# An ordinary loop. The only difference between the two runs is the loader that it is given. Both see as many samples an epoch.


# %%
def learn(sifted, seed, n_epochs=12):
    model = build_model(
        "mlp", n_classes=10, input_shape=(64,), width=64, seed=seed
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(
        TensorDataset(X_train, y_train),
        batch_size=32,
        shuffle=True,
        generator=generator,
    )
    if sifted:
        loader = sift(loader, model, n_epochs=n_epochs, seed=seed)  # the line
    seen, accuracy = [0], []
    for _ in range(n_epochs):
        for x, target in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), target).backward()
            optimizer.step()
            seen[-1] += len(x)
        with torch.no_grad():
            accuracy.append(
                (model(X_test).argmax(1) == y_test).float().mean().item()
            )
        seen.append(seen[-1])
    return loader, seen[:-1], accuracy


runs = {
    sifted: [learn(sifted, seed) for seed in range(3)]
    for sifted in (False, True)
}
sampler = runs[True][0][0].coreset_sampler
print(sampler.strategy.regime(sampler.context))

# %% numbers may differ by 3 %
for sifted, found in runs.items():
    samples = np.mean([seen[-1] for _, seen, _ in found])
    accuracy = np.mean([accuracy[-1] for _, _, accuracy in found])
    print(
        f"{'sifted' if sifted else 'all data'}: {samples:,.0f} samples, test accuracy {accuracy:.1%}"
    )

# %%
figure, ax = plt.subplots(figsize=(5.6, 3.0), layout="constrained")
for sifted, color in ((False, "black"), (True, "#0072B2")):
    seen = np.mean([seen for _, seen, _ in runs[sifted]], axis=0)
    accuracy = np.mean([accuracy for _, _, accuracy in runs[sifted]], axis=0)
    ax.plot(
        seen,
        accuracy,
        "o-",
        color=color,
        label="sifted" if sifted else "all data",
    )
ax.set(xlabel="samples seen", ylabel="test accuracy, mean of 3 runs")
ax.legend(frameon=False)

# %% [markdown]
# ## When it pays
#
# With near-duplicates and wrong labels, and while the model still learns. On clean data that are learnt already, `auto` trains on everything, and fewer epochs on all data are the rival to beat.
# [Train in my own loop](../how-to/own-loop.md) shows the sampler behind `sift`, weights and checkpoints; [Which strategy?](../choosing.md) says what to take when only a share of the data can be read.
