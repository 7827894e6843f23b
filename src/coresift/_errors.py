"""The errors coresift raises on purpose, also of the built-in classes that callers expect, such as ``ValueError``."""

import importlib
from typing import Any


class CoresiftError(Exception):
    """Base of every error that coresift raises on purpose."""


class InvalidInputError(CoresiftError, ValueError):
    """An argument has a value that cannot be used; the message names the argument, the value and the limit."""


class InvalidTypeError(CoresiftError, TypeError):
    """An argument has a type that cannot be used."""


class MissingExtraError(CoresiftError, ImportError):
    """An optional dependency is needed; the message names the extra to install."""


def need(module: str, extra: str, what: str) -> Any:
    """Import an optional module that ``what`` needs; if it is missing, name the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        package = {"PIL": "Pillow", "ray": "Ray"}.get(package, package)
        raise MissingExtraError(f'{what} needs {package}: pip install "coresift[{extra}]"') from error
