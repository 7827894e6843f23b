"""Any estimator with ``sample_weight``: the weights of a coreset go there."""

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from coresift import RBFCoreset

X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
core = RBFCoreset(random_state=0).fit(X).sample(0.2)
X_core, y_core, w = core.take(X, y)
accuracy = LogisticRegression(max_iter=5000).fit(X_core, y_core, sample_weight=w).score(X_test, y_test)
whole = LogisticRegression(max_iter=5000).fit(X, y).score(X_test, y_test)
print(f"trained on all {len(X)} digits: {whole:.1%}")
print(f"trained on {core.size} of them: {accuracy:.1%}")
