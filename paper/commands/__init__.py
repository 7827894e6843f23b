"""The commands of the laboratory."""

from coresift import InvalidInputError


def parse_shares(text: str) -> list[float]:
    """Shares from ``"1%,3%"`` or ``"0.01,0.03"``."""
    from coresift._validation import share  # here: benchmarks set the number of threads before NumPy is imported

    shares = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        try:
            shares.append(share(word))
        except (ValueError, ArithmeticError):
            raise InvalidInputError(f"budget {word!r} is not a share; write 1%,3% or 0.01,0.03.") from None
    return shares
