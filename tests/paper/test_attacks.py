"""The attacks on certificates, a few of each kind; and that they would catch a certificate that is too small."""

from dataclasses import replace

import numpy as np
import pytest

from coresift import Coreset
from paper.benchmarks import attacks


@pytest.mark.parametrize("kind", attacks.KINDS)
def test_no_query_is_above_the_exact_certificate(kind: str) -> None:
    number = list(attacks.KINDS).index(kind)
    found = [attacks.attacked(kind, (10**6, number, i), is_tight=False)["exact"] for i in range(6)]
    assert max(found) <= 1.0
    assert max(found) > 0.2  # the search comes near


@pytest.mark.parametrize("kind", attacks.KINDS)
def test_a_certificate_that_is_a_little_too_small_is_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = (10**6, 77, 0)
    assert attacks.SHRUNK < attacks.attacked(kind, seed, is_tight=True)["exact"] <= 1.0
    certify = Coreset.certify

    def shrunk(self: Coreset, *args: object, **options: object) -> object:
        found = certify(self, *args, **options)  # type: ignore[arg-type]
        return replace(found, eps=attacks.SHRUNK * found.eps)

    monkeypatch.setattr(Coreset, "certify", shrunk)
    assert attacks.attacked(kind, seed, is_tight=True)["exact"] > 1.0


def test_figures_are_added_up() -> None:
    of_kind = {"attacks": 20, "above": 0, "largest": 0.5, "sampled_above": 1, "sampled_largest": 0.75, "sampled_nan": 0}
    of_kind |= {"tight": 4, "caught": 4}
    records = [{"part": i, "kinds": dict.fromkeys(attacks.KINDS, of_kind)} for i in range(2)]
    records[1]["kinds"] = records[1]["kinds"] | {"sparse": of_kind | {"largest": 1.25, "above": 2}}
    last = attacks.summary(records)[-1]
    assert (last["attacks"], last["above"], last["largest"], last["caught"]) == (400, 2, 1.25, 80)
    assert "| sparse | 40 | 2 | 1.2500000 | 2 | 0 | 0.7500000 | 8 of 8 |" in attacks.page(records)


def test_the_committed_figures_have_twenty_thousand_attacks_and_none_above() -> None:
    if not (attacks.RESULTS / "runs.jsonl").exists():
        pytest.skip("source archives carry no results")
    records = attacks.Log(attacks.RESULTS / "runs.jsonl").records
    last = attacks.summary(records)[-1]
    assert last["attacks"] >= 20_000
    assert last["above"] == 0
    assert last["caught"] == last["tight"]
    # the sampled form: binomial with a chance of at most 0.05 each, five standard deviations
    assert last["sampled_above"] <= 0.05 * last["attacks"] + 5 * np.sqrt(0.05 * 0.95 * last["attacks"])
    assert (attacks.RESULTS / "README.md").read_text() == attacks.page(records)
