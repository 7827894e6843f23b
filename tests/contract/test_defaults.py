"""What the documentation says of default values is what the code does: ``name : type, default value``."""

import ast
import inspect
import re

import pytest

import coresift
import coresift.selection
from coresift.selection import FixedCoreset

_DEFAULT = re.compile(r"^ *(?P<names>\w+(?:, \w+)*) : .*, default (?P<value>.+)$", re.MULTILINE)
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def _value(text):
    number, _, unit = text.partition(" ")
    return float(number) * _UNITS[unit] if unit in _UNITS else ast.literal_eval(text)


def documented(thing):
    """Pairs of a parameter and its documented default."""
    found = []
    for match in _DEFAULT.finditer(inspect.getdoc(thing) or ""):
        try:
            value = _value(match["value"])
        except (ValueError, SyntaxError):  # a sentence, not a value
            continue
        found.extend((name, value) for name in match["names"].split(", "))
    return found


def _public():
    for module in (coresift, coresift.selection):
        for name in sorted(module.__all__):
            thing = getattr(module, name)
            if callable(thing) and documented(thing):
                yield pytest.param(thing, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("thing", list(_public()))
def test_documented_defaults_are_the_defaults(thing):
    parameters = inspect.signature(thing).parameters
    hands_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for name, value in documented(thing):
        assert name in parameters or hands_on, f"{name} is documented and no parameter"
        if name in parameters:
            assert parameters[name].default == value, name


def test_the_reader_of_docstrings_reads_them():
    assert ("check", True) in documented(FixedCoreset)
    assert len(list(_public())) >= 10
    assert sum(len(documented(parameter.values[0])) for parameter in _public()) >= 35
