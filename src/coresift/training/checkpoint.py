"""The folder of a run: configuration, two checkpoints, metrics and result; safetensors and JSON, no pickle.

``config.json`` is there first and ``result.json`` last; in between, each checkpoint is one file that appears complete
or not at all and carries a SHA-256 of everything in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from .._errors import CoresiftError, InvalidInputError
from .._progress import logger
from ..coresets.files import unwritable, write_whole

_KEY = "coresift"
_FORMAT, _VERSION = "coresift.run", 1
_KEPT = 2
_SECONDS = ("selection", "training", "evaluation", "clock")

CONFIG, METRICS, MODEL, RESULT = "config.json", "metrics.jsonl", "model.safetensors", "result.json"
DATA = "data.json"


class DamagedCheckpointError(CoresiftError, OSError):
    """A checkpoint that cannot be used; the message names the file and says why."""


@dataclass(frozen=True)
class RunFolder:
    """Where a run writes."""

    path: Path

    def begin(self, config: Mapping[str, Any]) -> None:
        """Write the configuration, or find the same one written before."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise InvalidInputError(
                f"{self.path}: is a file, or in one; out is the folder of a run."
            ) from error
        for draft in (*self.path.glob(".coresift-*.tmp"), *self._checkpoints.glob(".coresift-*.tmp")):
            draft.unlink(missing_ok=True)  # of a process that was killed while writing
        if not (self.path / CONFIG).exists():
            others = sorted(name.name for name in self.path.iterdir())
            if others:
                raise InvalidInputError(
                    f"{self.path}: the folder holds other things ({others[0]}) and no run; choose an empty one."
                )
            text = json.dumps({"format": _FORMAT, "version": _VERSION, **config}, indent=1)
            write_text(self.path / CONFIG, text)
            return
        before, now = self.config(), json.loads(json.dumps(dict(config)))
        ignored = {"software", "about"} | (
            now.keys() - before.keys()
        )  # the latter: begun by an older version
        changed = [key for key in now if key not in ignored and before[key] != now[key]]
        if changed:
            raise InvalidInputError(
                f"{self.path}: holds another run: {changed[0]} was {before[changed[0]]!r} and is now "
                f"{now[changed[0]]!r}; choose another folder, or remove this one."
            )

    def config(self) -> dict[str, Any]:
        """The configuration of the run."""
        found = read_json(self.path / CONFIG)
        if found.get("format") != _FORMAT or found.get("version") != _VERSION:
            raise InvalidInputError(f"{self.path / CONFIG}: not the configuration of a run of this coresift.")
        return found

    def describe(self, data: Mapping[str, Any]) -> None:
        """Write down what the inputs and outputs of the network mean."""
        if not (self.path / DATA).exists():
            write_text(self.path / DATA, json.dumps(dict(data), indent=1))

    def result(self) -> dict[str, Any] | None:
        """What a finished run found; None if it did not finish."""
        path = self.path / RESULT
        if not path.exists():
            return None
        found = read_json(path)
        seconds, test = found.get("seconds"), found.get("test", 0)
        if (
            not isinstance(seconds, dict)
            or not all(key in _SECONDS for key in seconds)
            or not isinstance(test, dict | None)
            or not isinstance(found.get("history"), list)
            or not all(isinstance(found.get(name), int) for name in ("n_epochs", "subset_size"))
        ):
            raise InvalidInputError(
                f"{path}: not the result of a run, or damaged; remove the file to run the last epochs again."
            )
        return found

    def finish(self, model: nn.Module, result: Mapping[str, Any]) -> None:
        """Keep the weights, then the result; checkpoints are needed no longer."""
        write_tensors(self.path / MODEL, tensors_of(model), {})
        write_text(self.path / RESULT, json.dumps(dict(result), indent=1))
        for path in self.checkpoints():
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._checkpoints.rmdir()

    def load_model(self, model: nn.Module) -> None:
        """The weights of the finished run."""
        tensors, _ = read_tensors(self.path / MODEL)
        _load(model, tensors, self.path / MODEL)

    # Metrics: appended line by line, and cut back to the checkpoint when a run goes on from there.

    def append(self, metrics: Mapping[str, Any]) -> None:
        """Add a line."""
        path = self.path / METRICS
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(metrics) + "\n")
        except OSError as error:
            raise unwritable(error, path) from error

    def rewrite(self, history: list[dict[str, Any]]) -> None:
        """Keep these lines only."""
        write_text(self.path / METRICS, "".join(json.dumps(line) + "\n" for line in history), newline=False)

    # Checkpoints.

    @property
    def _checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def checkpoints(self) -> list[Path]:
        """The newest first."""
        return sorted(self._checkpoints.glob("epoch-*.safetensors"), reverse=True)

    def save(self, epoch: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write the checkpoint after so many epochs, and keep the one before it."""
        self._checkpoints.mkdir(exist_ok=True)
        write_tensors(
            self._checkpoints / f"epoch-{epoch:06d}.safetensors", tensors, {**state, "epoch": epoch}
        )
        for path in self.checkpoints()[_KEPT:]:
            path.unlink(missing_ok=True)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint that is whole; None if there is none. Damaged ones are refused and logged."""
        refused = []
        for path in self.checkpoints():
            try:
                return read_tensors(path)
            except DamagedCheckpointError as error:
                refused.append(error)
                logger.warning("%s; trying the one before it.", error)
        if refused:
            raise DamagedCheckpointError(
                f"{refused[0]}, and there is no other; remove the file to start over."
            )
        return None


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model, copied to the CPU."""
    return {name: _own(value) for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def snapshot(
    model: nn.Module, optimizer: torch.optim.Optimizer, **parts: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Model, optimizer and further states as tensors with names, and as what JSON holds."""
    tensors = {f"model/{name}": value for name, value in tensors_of(model).items()}
    state: dict[str, Any] = {}
    found = optimizer.state_dict()
    flat = {
        f"{number}/{key}": value for number, kept in found["state"].items() for key, value in kept.items()
    }
    for part, values in (("optimizer", flat), *parts.items()):
        state[part] = {key: value for key, value in values.items() if not isinstance(value, Tensor)}
        tensors |= {
            f"{part}/{key}": _own(value) for key, value in values.items() if isinstance(value, Tensor)
        }
    state["param_groups"] = found["param_groups"]
    return tensors, state


def restore(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
) -> None:
    """Put model and optimizer where :func:`snapshot` found them."""
    _load(model, part_of("model", tensors), Path("checkpoint"))
    kept: dict[int, dict[str, Any]] = {}
    for name, value in {**state["optimizer"], **part_of("optimizer", tensors)}.items():
        number, key = name.split("/", 1)
        kept.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({"state": kept, "param_groups": state["param_groups"]})


def part_of(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one part of a snapshot, under their own names."""
    return {
        name.removeprefix(f"{part}/"): value for name, value in tensors.items() if name.startswith(f"{part}/")
    }


def write_tensors(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Tensors and a JSON text in one file, with a checksum over both."""
    text = json.dumps(
        dict(state)
    )  # an infinite loss of the validation data is written as Infinity, and read so
    about = json.dumps({"state": text, "sha256": _checksum(tensors, text)})
    content = save(dict(tensors), metadata={_KEY: about})
    write_whole(path, lambda file: file.write(content))  # type: ignore[arg-type]


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What :func:`write_tensors` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            # copies: views into the file may lie at addresses for which sums are rounded otherwise
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            about = json.loads((file.metadata() or {})[_KEY])
        text, digest = about["state"], about["sha256"]
    except (SafetensorError, ValueError, KeyError, TypeError, OSError) as error:
        raise DamagedCheckpointError(f"{path}: cannot be read, or is damaged ({error})") from error
    if digest != _checksum(tensors, text):
        raise DamagedCheckpointError(f"{path}: the checksum does not match: the file is damaged")
    return tensors, json.loads(text)


def write_text(path: Path, text: str, *, newline: bool = True) -> None:
    """A text file that appears complete or not at all."""
    content = (text + "\n" * newline).encode()
    write_whole(path, lambda file: file.write(content))  # type: ignore[arg-type]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an error that names the file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInputError(f"{path}: no such file; {os.fspath(path.parent)} holds no run.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path}: cannot be read, or is damaged ({error})") from error
    if not isinstance(found, dict):
        raise InvalidInputError(f"{path}: holds no JSON object")
    return found


def check_finite_loss(loss: float, epoch: int) -> None:
    """A run that has diverged ends: its numbers mean nothing, and its checkpoints would replace good ones."""
    if not math.isfinite(loss):
        raise InvalidInputError(
            f"the loss is {loss} in epoch {epoch + 1}: training diverged; a smaller lr may help."
        )


def _load(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise InvalidInputError(f"{path}: is of another model ({' '.join(str(error).split())})") from error


def _own(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().clone()  # shared storage is refused by the format


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
