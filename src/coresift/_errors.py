"""The errors coresift raises on purpose, also of the built-in classes that callers expect, such as ``ValueError``."""


class CoresiftError(Exception):
    """Base of every error that coresift raises on purpose."""


class InvalidInputError(CoresiftError, ValueError):
    """An argument has a value that cannot be used; the message names the argument, the value and the limit."""


class DivergedError(InvalidInputError):
    """Training gave a loss that is not finite."""


class InvalidTypeError(CoresiftError, TypeError):
    """An argument has a type that cannot be used."""


class MissingExtraError(CoresiftError, ImportError):
    """An optional dependency is needed; the message names the extra to install."""
