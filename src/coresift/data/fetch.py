"""The folder of the named data sets, and downloads into it."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .._errors import InvalidInputError
from .._imports import need

VARIABLE = "CORESIFT_DATA_DIR"


@dataclass(frozen=True)
class Download:
    """A published file and its checksum."""

    file: str
    urls: tuple[str, ...]  # tried in this order
    checksum: str  # md5:... or sha256:...


def data_folder(data_dir: str | os.PathLike[str] | None) -> Path:
    """The folder of all data sets: as given, else ``$CORESIFT_DATA_DIR``, else ``coresift_data`` in the home folder."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else Path.home() / "coresift_data"


def first_file(folders: Iterable[Path], names: Sequence[str]) -> Path | None:
    """The first of these files that exists."""
    return next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)


def fetch(file: Download, folder: Path) -> Path:
    """Download a file into ``folder`` and check it; a file with a wrong checksum is not kept."""
    pooch = need("pooch", "io", "a download")
    pooch.get_logger().setLevel("WARNING")
    failures = []
    for url in file.urls:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return Path(pooch.retrieve(url, file.checksum, fname=file.file, path=folder))
        except (OSError, ValueError) as error:  # requests raises OSErrors; a wrong checksum is a ValueError
            failures.append(f"{url}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
    raise InvalidInputError(
        f"{folder / file.file}: could not be downloaded ({'; '.join(failures)}). "
        "Without a network, put the file there by hand."
    )


def check_published(path: Path, files: Sequence[Download]) -> None:
    """Refuse a file whose checksum is not the published one; files that are not published pass."""
    for file in (each for each in files if each.file == path.name):
        kind, _, expected = file.checksum.partition(":")
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, kind).hexdigest()
        if found != expected:
            raise InvalidInputError(f"{path}: its {kind} is {found}, but {expected} is published; download it again.")
