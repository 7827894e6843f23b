"""What figures share: names of files, folders that cannot be written to, intervals."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from coresift import InvalidInputError
from paper.plots import check_writable, figure_paths, true_spans


def test_the_suffix_chooses_the_kind() -> None:
    assert figure_paths(Path("a/b.svg")) == [Path("a/b.svg")]
    assert figure_paths(Path("b.PNG")) == [Path("b.PNG")]
    assert figure_paths(Path("a/b")) == [Path("a/b.svg"), Path("a/b.png")]
    with pytest.raises(InvalidInputError, match=r"b\.pdf: unknown suffix '\.pdf'; use \.svg or \.png"):
        figure_paths(Path("b.pdf"))


def test_what_cannot_be_written_is_found_out_before(tmp_path: Path) -> None:
    check_writable(tmp_path / "a.svg")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidInputError, match=r"a\.svg: cannot be written \(No such file or directory\)"):
        check_writable(tmp_path / "nosuch" / "a.svg")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match=r"a\.svg: cannot be written \(Not a directory\)"):
        check_writable(tmp_path / "file" / "a.svg")
    with pytest.raises(InvalidInputError, match="this is a folder"):
        check_writable(tmp_path)


@given(flags=st.lists(st.booleans(), min_size=2, max_size=12))
def test_spans_hold_exactly_the_flagged_points(flags: list[bool]) -> None:
    x = [2.0**i for i in range(len(flags))]
    spans = list(true_spans(x, flags))
    for at, flag in zip(x, flags, strict=True):
        assert any(left <= at <= right for left, right in spans) == flag
    assert all(a[1] < b[0] for a, b in pairwise(spans))  # apart, in order
    if flags[0] and not flags[1]:
        assert spans[0] == (1.0, pytest.approx(math.sqrt(2.0)))
