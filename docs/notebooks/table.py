# %% [markdown]
# # A table: fit a model to 1 % of the rows
#
# You have a table and a linear model that takes too long on all of its rows. Choose a few rows with weights, fit the model to them, and let a certificate say what that cost.
# In a clone: `pip install ".[plots]"`.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from coresift import LinearCoreset, certify_model

# %% [markdown]
# ## The data
#
# A generated table: 50,000 rows, 20 columns with heavy tails, and a label that is true in 1 % of the rows.

# %%
rng = np.random.default_rng(0)
n, d = 50_000, 20
X = rng.standard_t(4, size=(n, d))
score = X @ rng.normal(size=d) * 0.5 + rng.logistic(size=n)
y = score > np.quantile(score, 0.99)
print(f"{n:,} rows, {y.sum()} of them positive")

# %% [markdown]
# ## Choose, fit, certify
#
# `alpha` is the penalty of the mean loss; scikit-learn's `C` is `1 / (alpha * sum of the weights)`.

# %%
alpha = 1e-4
chooser = LinearCoreset("logistic", alpha=alpha, random_state=0).fit(X, y)


def fit(X, y, weights):
    model = LogisticRegression(
        C=1 / (alpha * weights.sum()), max_iter=1000, tol=1e-6
    )
    return model.fit(X, y, sample_weight=weights)


core = chooser.sample(0.01)
X_small, y_small, weights = core.take(X, y)
model = fit(X_small, y_small, weights)
print(f"{core.size} rows chosen, {y_small.sum()} of them positive")

# %% numbers may differ by 95 %
certificate = certify_model(model, X, y, alpha=alpha)
print(
    f"at most {certificate.relative:.3%} above the smallest possible loss: proved"
)

# %% [markdown]
# The certificate holds without a probability, and it does not need the fit to all rows.
#
# ## A uniform sample of the same size
#
# It has only a few positive rows, and the certificate of its fit shows it.

# %% numbers may differ by 95 %
sizes = [500, 1000, 2000, 5000]
excess = {"uniform sample": [], "coreset": []}
for size in sizes:
    rows = rng.choice(n, size, replace=False)
    uniform = fit(X[rows], y[rows], np.full(size, n / size))
    chosen = fit(*chooser.sample(size).take(X, y))
    for name, each in (("uniform sample", uniform), ("coreset", chosen)):
        excess[name].append(certify_model(each, X, y, alpha=alpha).relative)
for name, values in excess.items():
    print(f"{name} of {sizes[1]:,} rows: at most {values[1]:.1e}")

# %%
figure, ax = plt.subplots(figsize=(5.6, 3.0), layout="constrained")
ax.loglog(
    sizes, excess["uniform sample"], "o:", color="black", label="uniform sample"
)
ax.loglog(sizes, excess["coreset"], "^-", color="#0072B2", label="coreset")
ax.set(xlabel="rows", ylabel="certified excess loss")
ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
ax.minorticks_off()
ax.legend(frameon=False)

# %% [markdown]
# ## When it pays
#
# Many fits of the same rows, files larger than memory, and rare classes. A single fit of data in memory gains no time: a good solver needs about as many passes as the choice.
# [How to fit a model on 1 % of a table](../how-to/models.md) has files, grids and the table of what to expect;
# [Which subset for my model?](../subsets.md) has models that are not linear.
