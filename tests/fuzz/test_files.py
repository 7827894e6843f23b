"""Damaged and hostile files: a few of each for every reader. ``python -m tools.fuzz_files`` tries thousands."""

from pathlib import Path

import numpy as np
import pytest

from coresift import InvalidInputError
from paper.lower_bound import CircleSensitivities
from paper.tables import read_table
from tools.fuzz_files import examine
from tools.fuzz_files.__main__ import results
from tools.fuzz_files.examine import Bench, judged
from tools.fuzz_files.hostile import HOSTILE
from tools.fuzz_files.mutate import MUTATIONS, mutated
from tools.fuzz_files.readers import READERS, Reader


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name.replace(" ", "-"))
def test_a_damaged_file_is_refused_by_name_or_harmless(reader: Reader, tmp_path: Path) -> None:
    bench = Bench(reader, tmp_path)
    assert bench.attempt(bench.content)[0] == "read"  # the file as it is
    outcomes = [bench.case(7, number) for number in range(12)]
    assert [text for kind, text in outcomes if kind == "bad"] == []
    if reader.name != "checkpoint":  # of two the other one is taken
        assert "refused" in {kind for kind, _ in outcomes}


@pytest.mark.slow
def test_hostile_files_are_refused_without_harm() -> None:
    """In a child with a limit on its memory: 2 GiB of zeros in a few megabytes, 24 TB announced, pickles, links."""
    bad, refused = {}, 0
    for (_, number), kind, text in results([("hostile", number) for number in range(len(HOSTILE))], 0):
        refused += kind == "refused"
        if kind == "bad":
            bad[HOSTILE[number].name] = text
    assert not bad, bad
    assert refused >= len(HOSTILE) - 3


def test_a_table_whose_header_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"n_samples')
    with pytest.raises(InvalidInputError, match=r"a\.csv, line 1: "):
        read_table(tmp_path / "a.csv", CircleSensitivities)


# The judge itself: it must see what it looks for.


def _path(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(b"0123456789" * 50)
    return tmp_path / "a"


def _raises(error: Exception) -> Reader:
    def read(path: Path) -> object:
        raise error

    return Reader("a", _path, read)


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        (KeyError("x"), "KeyError"),
        (RuntimeWarning("overflow"), "RuntimeWarning"),
        (OSError(22, "Invalid argument"), "does not name the file"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_other_errors_are_seen(tmp_path: Path, error: Exception, complaint: str) -> None:
    kind, text = Bench.attempt(_bench(_raises(error), tmp_path), b"x")
    assert kind == "bad"
    assert complaint in text


def test_files_left_behind_and_other_content_are_seen(tmp_path: Path) -> None:
    def read(path: Path) -> object:
        if path.read_bytes() == b"write":
            (path.parent.parent / "evil").touch()
        return path.read_bytes()

    bench = Bench(Reader("a", _path, read, is_checked=True), tmp_path)
    assert bench.attempt(b"write") == ("bad", "something else was read than was written")
    bench = Bench(Reader("a", _path, lambda path: read(path) and None), tmp_path / "again")
    kind, text = bench.attempt(b"write")
    assert kind == "bad"
    assert "evil" in text


def test_a_hog_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "MOST_GROWTH", -1)
    hog = Reader("a", _path, lambda path: None)
    assert "memory" in judged(hog, _path(tmp_path))[1]


def _bench(reader: Reader, folder: Path) -> Bench:
    bench = object.__new__(Bench)
    (folder / "trial").mkdir()
    bench.reader, bench.folder, bench.expected = reader, folder, None
    bench.target, bench.content = folder / "trial" / "a", b""
    return bench


def test_mutations_change_the_file_and_repeat_by_seed() -> None:
    content = b'{"size": 12, "names": ["a", "b"]}' * 20
    for mutation in MUTATIONS:
        one, two = (mutation(content, np.random.default_rng(3)) for _ in range(2))
        assert one == two
    changed = [mutated(content, np.random.default_rng(i)) != content for i in range(100)]
    assert sum(changed) > 90
