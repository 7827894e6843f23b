"""The faults of the mutation tests: what is changed, what is left alone, and that each change is one change."""

import ast

import pytest

from tools.mutations import mutants_of, mutated

SOURCE = '''
"""Docstring with 1 < 2."""
from math import floor

LIMIT = 10
Alias = int | None


def f(x: "int | 3" = 2, *, flag: bool = True) -> float:
    """Another 1 + 1."""
    if x < 0 and not flag:
        raise ValueError(f"x={x + 1} must be at least {0}")
    rows = [max(x, 1.5)][:3]
    rows.append(-x)
    rows[0] += x // 2
    logger.info("%d", 1 + 1)
    return rows[0] * x


class A:
    def __repr__(self):
        return "a" * 3
'''


def changes():
    return [(mutant.operator, mutant.before, mutant.after) for mutant in mutants_of(SOURCE)]


@pytest.mark.parametrize(
    "change",
    [
        ("constant", "10", "11"),
        ("constant", "10", "9"),
        ("constant", "2", "3"),
        ("constant", "True", "False"),
        ("constant", "1.5", "3.0"),
        ("logic", "x < 0 and (not flag)", "x < 0 or not flag"),
        ("comparison", "x < 0", "x <= 0"),
        ("comparison", "x < 0", "x >= 0"),
        ("sign", "not flag", "flag"),
        ("sign", "-x", "x"),
        ("opposite", "max(x, 1.5)", "min(x, 1.5)"),
        ("slice", ":3", "1:3"),
        ("slice", ":3", ":3 + 1"),
        ("statement", "rows.append(-x)", "pass"),
        ("statement", "rows[0] += x // 2", "pass"),
        ("arithmetic", "rows[0] += x // 2", "rows[0] -= x // 2"),
        ("arithmetic", "x // 2", "x * 2"),
        ("result", "return rows[0] * x", "return None"),
        ("result", "return rows[0] * x", "return -(rows[0] * x)"),
    ],
)
def test_what_is_changed(change):
    assert change in changes()


def test_texts_types_and_loggers_are_left_alone():
    texts = ("Docstring", "Another", "Alias", "x + 1", "'int | 3'", "logger", "'a' * 3")
    assert not [before for _, before, _ in changes() for text in texts if before.startswith(text)]
    # the fault of a raise is that it is missing
    assert [after for _, before, after in changes() if before.startswith("raise")] == ["pass"]


def test_each_mutant_is_a_module_of_its_own_that_compiles():
    plain = ast.unparse(ast.parse(SOURCE)) + "\n"
    seen = [mutated(SOURCE, mutant) for mutant in mutants_of(SOURCE)]
    assert plain not in seen
    assert len(set(seen)) == len(seen) > 30
    assert len({mutant.key for mutant in mutants_of(SOURCE)}) == len(seen)
    for text in seen:
        compile(text, "mutant", "exec")


def test_a_fault_knows_the_lines_of_its_statement():
    places = {(m.operator, m.before): (m.lines, m.is_module_level) for m in mutants_of(SOURCE)}
    lines = SOURCE.splitlines()
    assert places["constant", "10"] == ((lines.index("LIMIT = 10") + 1,) * 2, True)
    header = next(i for i, line in enumerate(lines, 1) if line.startswith("    if x < 0"))
    assert places["comparison", "x < 0"] == ((header, header), False)  # not the lines under the condition
    assert places["constant", "True"][1]  # a default is made where the function is defined


def test_sizes_of_blocks_are_left_alone_and_numbers_of_rows_are_not():
    source = """
_BLOCK_BYTES = 1 << 20
LIMIT = 7

def f(points, n):
    for rows in row_slices(n + 2, 8.0 * points.d, _BLOCK_BYTES):
        pass
    for rows, block in points.blocks(extra_columns=2 * n):
        pass
"""
    found = {(mutant.before, mutant.after) for mutant in mutants_of(source)}
    assert {("7", "8"), ("n + 2", "n - 2")} <= found
    changed = {before for before, _ in found}
    assert not changed & {"1 << 20", "20", "8.0", "8.0 * points.d", "2 * n"}
