"""Tables of results: floats come back as they were, damage is named with file and line."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from coresift import InvalidInputError
from paper.tables import read_table, write_table


@dataclass(frozen=True)
class Row:
    name: str
    count: int
    value: "float"


text = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]))


@given(rows=st.lists(st.builds(Row, text, st.integers(), st.floats(allow_nan=False)), min_size=1))
def test_reading_gives_back_what_was_written(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("table") / "t.csv"
    write_table(path, rows)
    assert read_table(path, Row) == rows
    assert b"\r" not in path.read_bytes()
    assert [p.name for p in path.parent.iterdir()] == ["t.csv"]  # no draft stays behind


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "lacks the column 'count'"),
        (b"name,count\na,1\n", "lacks the column 'value'"),
        (b"name,count,value\n", "the table is empty"),
        (b"name,count,value\na,1,2\na,1\n", "line 3: "),
        (b"name,count,value\na,one,2\n", "line 2: invalid literal"),
        (b"name,count,value\na,1,x\n", "line 2: could not convert"),
        (b"\x89PNG\xff", "not a text file"),
    ],
)
def test_a_bad_table_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=complaint) as error:
        read_table(path, Row)
    assert str(error.value).startswith(str(path))


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"t\.csv: no such file"):
        read_table(tmp_path / "t.csv", Row)
