"""The offline half of the audit of dependencies."""

import json

from tools.audit_deps import answers, other_versions, pins


def test_pins_are_exact_versions() -> None:
    text = (
        "# words\nNumPy==2.4.6\ntorch==2.13.0+cpu  # a build\n"
        "scikit_learn[x]==1.9; python_version > '3'\nfoo>=1\nbar==1.*\n"
    )
    found, loose = pins(text)
    assert found == {"numpy": "2.4.6", "torch": "2.13.0+cpu", "scikit-learn": "1.9"}
    assert loose == ["foo>=1", "bar==1.*"]


def test_other_versions_are_named_and_builds_do_not_count() -> None:
    pinned = {"numpy": "2.4.6", "torch": "2.13.0", "absent": "1"}
    installed = {"numpy": "2.4.5", "torch": "2.13.0+cpu", "extra": "3"}
    assert other_versions(pinned, installed) == ["numpy 2.4.5 is installed, 2.4.6 is pinned in constraints.txt"]


def test_answers_of_the_service() -> None:
    text = json.dumps(
        {
            "dependencies": [
                {"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]},
                {"name": "b", "skip_reason": "not found"},
                {"name": "c", "version": "3", "vulns": []},
            ]
        }
    )
    assert answers(text) == (["a 1 has X-1, fixed in 2"], ["not found"])
    assert answers("no network") == ([], [])
