"""The folder of a run: configuration, two checkpoints, metrics and result, as safetensors and JSON, never pickle."""

import contextlib
import hashlib
import json
import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from .._errors import CoresiftError, InvalidInputError
from .._progress import logger
from ..coresets.files import parse_json, unwritable, write_whole

_KEY = "coresift"
_FORMAT = {"format": "coresift.run", "version": 1}
_KEPT = 2
_SECONDS = {"selection", "training", "evaluation", "clock"}

CONFIG, DATA, METRICS = "config.json", "data.json", "metrics.jsonl"
MODEL, RESULT = "model.safetensors", "result.json"

_LOCK, _HOLDER = ".lock", ".lock-holder"

Tensors = dict[str, Tensor]
State = dict[str, Any]


class DamagedCheckpointError(CoresiftError, OSError):
    """A checkpoint cannot be used; the message has the file and the reason."""


@dataclass(frozen=True)
class RunFolder:
    """The files of a run, in the folder ``path``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     RunFolder(Path(folder)).begin({"lr": 0.1})
    ...     RunFolder(Path(folder)).config()["lr"]
    0.1
    """

    path: Path

    def begin(self, config: Mapping[str, Any], held: ExitStack | None = None) -> None:
        """Write ``config``, or raise if there is a different one already; lock the folder until ``held`` closes."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InvalidInputError(f"{self.path}: out must be a folder, not a file or in one.") from None
        drafts = *self.path.glob(".coresift-*.tmp"), *self._checkpoints.glob(".coresift-*.tmp")
        if (self.path / CONFIG).exists():
            self.config()  # raises unless it is that of a run
        elif others := sorted({each.name for each in {*self.path.iterdir()}.difference(drafts)} - {_LOCK, _HOLDER}):
            raise InvalidInputError(f"{self.path}: holds other files ({others[0]}); use an empty folder.")
        if held is not None and os.access(self.path, os.W_OK):  # a finished run may be on a read-only disk
            self._lock(held)
        for draft in drafts:
            draft.unlink(missing_ok=True)  # left by a process that was killed while writing
        if not (self.path / CONFIG).exists() or not (self.checkpoints() or (self.path / RESULT).exists()):
            (self.path / DATA).unlink(missing_ok=True)  # of a run that failed before there was anything to keep
            _write_json(self.path / CONFIG, {**_FORMAT, **config})
            return
        before, now = self.config(), json.loads(json.dumps(dict(config)))
        for key in now:
            if key not in ("software", "about") and before.get(key, now[key]) != now[key]:
                change = f"{key} was {before[key]!r} and is now {now[key]!r}"
                raise InvalidInputError(f"{self.path}: holds another run: {change}; choose another folder.")

    def _lock(self, held: ExitStack) -> None:
        """Lock the folder until ``held`` is closed, or the process ends; if another one has it, say who."""
        holder = self.path / _HOLDER
        try:
            held.enter_context(FileLock(self.path / _LOCK).acquire(timeout=0))
        except Timeout:
            who = holder.read_text(encoding="utf-8", errors="replace") if holder.exists() else "another process"
            message = f"{self.path}: {who} is training there; wait for it, or choose another folder."
            raise CoresiftError(message) from None
        write_text(holder, f"process {os.getpid()} on {socket.gethostname()}")
        held.callback(holder.unlink, missing_ok=True)  # before the lock is released

    def config(self) -> State:
        """Read the configuration of the run."""
        found = read_json(self.path / CONFIG)
        if any(found.get(key) != value for key, value in _FORMAT.items()):
            raise InvalidInputError(f"{self.path / CONFIG}: not the configuration of a run of this version.")
        return found

    def describe(self, data: Mapping[str, Any]) -> None:
        """Write ``data``: what the inputs and outputs of the network mean."""
        if not (self.path / DATA).exists():
            _write_json(self.path / DATA, data)

    def result(self) -> State | None:
        """Read the result of a finished run; None if it did not finish."""
        if not (path := self.path / RESULT).exists():
            return None
        found = read_json(path)
        kinds = {"test": dict | None, "seconds": dict, "n_epochs": int, "subset_size": int, "history": list}
        is_whole = all(name in found and isinstance(found[name], kind) for name, kind in kinds.items())
        if is_whole and found.keys() <= {*kinds, "regime"} and found["seconds"].keys() <= _SECONDS:
            figures = {**(found["test"] or {}), **found["seconds"], "clock": 0.0}
            if all(isinstance(value, int | float) for value in figures.values()):
                return found
        raise InvalidInputError(f"{path}: is damaged; remove it to repeat the last epochs.")

    def finish(self, model: nn.Module, result: Mapping[str, Any]) -> None:
        """Write the weights of the ``model``, then the ``result``; remove the checkpoints."""
        write_tensors(self.path / MODEL, tensors_of(model), {})
        _write_json(self.path / RESULT, result)
        for path in self.checkpoints():
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._checkpoints.rmdir()

    def load_model(self, model: nn.Module) -> None:
        """Load the weights of the finished run into ``model``."""
        load_tensors(model, read_tensors(self.path / MODEL)[0], self.path / MODEL)

    def append(self, metrics: Mapping[str, Any]) -> None:
        """Append the ``metrics`` of an epoch as a line."""
        try:
            with (self.path / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(metrics) + "\n")
        except OSError as error:
            raise unwritable(error, self.path / METRICS) from error

    def rewrite(self, history: list[State]) -> None:
        """Replace the metrics by ``history``, up to the checkpoint from which a run resumes."""
        write_text(self.path / METRICS, "".join(json.dumps(line) + "\n" for line in history))

    @property
    def _checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def checkpoints(self) -> list[Path]:
        """List the checkpoints, the newest first."""
        return sorted(self._checkpoints.glob("epoch-*.safetensors"), reverse=True)

    def save(self, epoch: int, parts: State) -> None:
        """Write a checkpoint after ``epoch`` epochs, and keep the one before it; ``parts`` are tensors and JSON."""
        tensors: Tensors = {}
        state = {**parts, "epoch": epoch}
        for part, values in parts.items():
            if isinstance(values, dict):
                state[part] = {key: value for key, value in values.items() if not isinstance(value, Tensor)}
                tensors |= {f"{part}/{key}": values[key] for key in values if key not in state[part]}
        self._checkpoints.mkdir(exist_ok=True)
        write_tensors(self._checkpoints / f"epoch-{epoch:06d}.safetensors", tensors, state)
        for path in self.checkpoints()[_KEPT:]:
            path.unlink(missing_ok=True)

    def load(self) -> State | None:
        """Read the parts of the newest intact checkpoint, or None. Log damaged ones, and raise if all are."""
        refused = []
        for path in self.checkpoints():
            try:
                tensors, parts = read_tensors(path)
            except DamagedCheckpointError as error:
                refused.append(error)
                logger.warning("%s; trying the one before it.", error)
                continue
            for name, value in tensors.items():
                part, key = name.split("/", 1)
                parts.setdefault(part, {})[key] = value
            return parts
        if refused:
            raise DamagedCheckpointError(f"{refused[0]}; there is no other: remove the file to start over.")
        return None


def tensors_of(model: nn.Module) -> Tensors:
    """Return the tensors in the state of a model."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def load_tensors(model: nn.Module, tensors: Tensors, path: Path) -> None:
    """Load the state of a model, which came from ``path``."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise InvalidInputError(f"{path}: belongs to another model ({error})") from error


def write_tensors(path: Path, tensors: Tensors, state: State) -> None:
    """Write tensors and a JSON text to one file, with a checksum of both."""
    # safetensors refuses shared storage
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    text = json.dumps(state)  # an infinite validation loss is written as Infinity, which Python reads again
    content = save(tensors, metadata={_KEY: json.dumps({"state": text, "sha256": _checksum(tensors, text)})})
    write_whole(path, lambda file: file.write(content))


def read_tensors(path: Path) -> tuple[Tensors, State]:
    """Read what :func:`write_tensors` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            # clone: sums over views into the file may be rounded differently, depending on their address
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            about = json.loads((file.metadata() or {})[_KEY])
        text, digest = about["state"], about["sha256"]
    except (SafetensorError, ValueError, KeyError, TypeError, OSError) as error:
        raise DamagedCheckpointError(f"{path}: cannot be read, or is damaged ({error})") from error
    if digest != _checksum(tensors, text):
        raise DamagedCheckpointError(f"{path}: the checksum does not match: the file is damaged")
    return tensors, json.loads(text)


def write_text(path: Path, text: str) -> None:
    """Write a text file, completely or not at all."""
    write_whole(path, lambda file: file.write(text.encode()))


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")


def read_json(path: Path) -> State:
    """Read a JSON object; errors have the name of the file."""
    try:
        found = parse_json(path.read_text(encoding="utf-8"), finite=False)
    except FileNotFoundError:
        raise InvalidInputError(f"{path}: no such file; {path.parent} is not the folder of a run.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path}: cannot be read, or is damaged ({error})") from error
    if not isinstance(found, dict):
        raise InvalidInputError(f"{path}: is not a JSON object")
    return found


def _checksum(tensors: Tensors, text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
