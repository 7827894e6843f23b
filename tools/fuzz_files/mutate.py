"""Ways to damage a file, each a function of its bytes and a generator."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

Mutation = Callable[[bytes, np.random.Generator], bytes]

# lengths and counts stand in headers as integers of these widths; the extremes are where readers overflow
_EXTREMES = (0, 1, 127, 128, 255, 256, 2**15 - 1, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
_WORDS = (
    *("-1", "0", "1e400", "NaN", "Infinity", "null", "true", "{}", "[]", '""', "'", '"', "9" * 5000),
    *("99999999999999999999", "../../x", "/etc/passwd", "\\u0000", "<script>", "]" * 50, "[" * 3000),
)
_TOKEN = re.compile(rb"[A-Za-z_]+|-?[0-9][0-9.e+-]*|[\[\]{}(),:]")


def cut_off(content: bytes, rng: np.random.Generator) -> bytes:
    """The beginning alone."""
    return content[: int(rng.integers(len(content)))]


def cut_out(content: bytes, rng: np.random.Generator) -> bytes:
    """Without a piece."""
    start = int(rng.integers(len(content)))
    return content[:start] + content[start + int(rng.integers(1, 200)) :]


def flipped(content: bytes, rng: np.random.Generator) -> bytes:
    """Some bits the other way round, near the beginning or the end more often than not: headers stand there."""
    damaged = bytearray(content)
    for _ in range(int(rng.integers(1, 9))):
        damaged[_place(len(content), rng)] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def overwritten(content: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes that are random, all zero or all one."""
    start, length = _place(len(content), rng), int(rng.integers(1, 65))
    kind = int(rng.integers(3))
    new = rng.bytes(length) if kind == 0 else (b"\0" if kind == 1 else b"\xff") * length
    return content[:start] + new + content[start + length :]


def extreme_integer(content: bytes, rng: np.random.Generator) -> bytes:
    """A number that is far too large, or zero, in either byte order."""
    width = int(rng.choice([1, 2, 4, 8]))
    value = int(rng.choice(np.array(_EXTREMES, dtype=np.uint64))) % (1 << (8 * width))
    new = value.to_bytes(width, "little" if rng.random() < 0.5 else "big")
    start = _place(len(content), rng)
    return content[:start] + new + content[start + width :]


def inserted(content: bytes, rng: np.random.Generator) -> bytes:
    """Random bytes in between, so that everything behind them stands in the wrong place."""
    start = _place(len(content), rng)
    return content[:start] + rng.bytes(int(rng.integers(1, 33))) + content[start:]


def repeated(content: bytes, rng: np.random.Generator) -> bytes:
    """A piece twice."""
    start = int(rng.integers(len(content)))
    end = start + int(rng.integers(1, 400))
    return content[:end] + content[start:end] + content[end:]


def other_word(content: bytes, rng: np.random.Generator) -> bytes:
    """A word or number of a text (or of a header that is one) replaced."""
    found = list(_TOKEN.finditer(content[: 1 << 16]))
    if not found:
        return flipped(content, rng)
    at = found[int(rng.integers(len(found)))]
    return content[: at.start()] + str(rng.choice(_WORDS)).encode() + content[at.end() :]


def swapped_words(content: bytes, rng: np.random.Generator) -> bytes:
    """Two words of a text exchanged."""
    found = list(_TOKEN.finditer(content[: 1 << 16]))
    if len(found) < 2:
        return flipped(content, rng)
    first, second = (found[int(i)] for i in np.sort(rng.choice(len(found), 2, replace=False)))
    between = content[first.end() : second.start()]
    return content[: first.start()] + second[0] + between + first[0] + content[second.end() :]


def foreign(content: bytes, rng: np.random.Generator) -> bytes:
    """Another file altogether: nothing, noise, or the right beginning and then noise."""
    kind = int(rng.integers(3))
    noise = rng.bytes(int(rng.integers(1, 2000)))
    return b"" if kind == 0 else noise if kind == 1 else content[:8] + noise


MUTATIONS: tuple[Mutation, ...] = (
    cut_off,
    cut_out,
    flipped,
    flipped,
    overwritten,
    extreme_integer,
    extreme_integer,
    inserted,
    repeated,
    other_word,
    swapped_words,
    foreign,
)


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """The content damaged in one to three ways."""
    for _ in range(1 + int(rng.random() < 0.3) + int(rng.random() < 0.1)):
        if content:
            content = MUTATIONS[int(rng.integers(len(MUTATIONS)))](content, rng)
    return content


def _place(length: int, rng: np.random.Generator) -> int:
    where = int(rng.integers(3))
    if where == 0:
        return int(rng.integers(length))
    near = int(rng.integers(min(length, 512)))
    return near if where == 1 else length - 1 - near
