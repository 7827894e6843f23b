"""What is read after its checksum is right: every value exchanged for a wrong one, and the checksum computed anew.

Whatever a file holds, it is refused in one of our errors, or it works.
"""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from coresift import Coreset, CoresiftError, LinearModel, StreamingCoreset, fit_model, select
from coresift.cli import main
from coresift.coresets.files import stamped, write_npz

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 3))
WRONG: list[Any] = [
    None,
    "text",
    "",
    -1,
    0,
    1.5,
    10**400,
    True,
    [],
    {},
    ["a", 1],
    {"infinite": True},
    1e308,
    [[1.0]],
    [1e308],
]


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in a JSON object; of long lists only the first and the last entry."""
    if at:
        yield at
    if isinstance(value, dict):
        for key in value:
            yield from paths(value[key], (*at, key))
    elif isinstance(value, list) and value:
        for key in {0, len(value) - 1}:
            yield from paths(value[key], (*at, key))


def tampered(header: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for place in paths(header):
        for wrong in [*WRONG, KeyError]:
            made = copy.deepcopy(header)
            inner = made
            for key in place[:-1]:
                inner = inner[key]
            if wrong is KeyError:
                if isinstance(inner, list):
                    continue
                del inner[place[-1]]
            else:
                inner[place[-1]] = wrong
            yield f"{'.'.join(map(str, place))} = {wrong!r:.40}", made


def problems(cases: Iterator[tuple[str, Any]], use: Callable[[Any], object]) -> list[str]:
    """The cases that ended in an error that is not ours."""
    found = []
    for name, case in cases:
        try:
            use(case)
        except CoresiftError:
            pass
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {error}"[:200])
    return found


def arrays_of(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name not in ("header", "run")}
        return json.loads(str(file["header"])), arrays


def stamp(kind: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    about = {key: value for key, value in header.items() if key not in ("format", "version", "sha256")}
    return stamped(kind, header["version"], about, arrays)


def test_headers_of_coresets(tmp_path: Path) -> None:
    path, again = tmp_path / "core.npz", tmp_path / "again.npz"
    core = select(X, 20, method="iid", bandwidth=3.0).coreset
    core = replace(core, certificate=core.certify(X))
    core.save(path)
    header, arrays = arrays_of(path)
    about = {key: header[key] for key in header if key not in ("format", "version", "sha256")}

    def use(made: dict[str, Any]) -> None:
        text = stamp("coreset", {**made, "version": header["version"]}, arrays)
        with again.open("wb") as file:
            write_npz(file, {"header": text}, arrays)
        loaded = Coreset.load(again)
        repr(loaded), str(loaded.guarantee), loaded.save(tmp_path / "third.npz")
        if loaded.ball is not None:
            loaded.certify(X, n_sampled=2, method="exact")

    assert problems(tampered(about), use) == []


def test_records_of_selections(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "w": np.abs(X[:, 2])})
    parquet.write_table(table, tmp_path / "rows.parquet")
    select(tmp_path / "rows.parquet", 20, columns=["a", "b"], weight="w").save(tmp_path / "core.parquet")
    whole = parquet.read_table(tmp_path / "core.parquet")
    run = json.loads(whole.schema.metadata[b"coresift.run"])
    said = []
    for name, made in tampered({key: run[key] for key in ("columns", "embedding", "label", "weight", "image_size")}):
        record = {**whole.schema.metadata, b"coresift.run": json.dumps(made).encode()}
        parquet.write_table(whole.replace_schema_metadata(record), tmp_path / "core.parquet")
        code = main(["certify", str(tmp_path / "rows.parquet"), str(tmp_path / "core.parquet"), "-q"])
        error = capsys.readouterr().err
        if code not in (0, 1) or "unexpected" in error or (code and len(error.splitlines()) != 1):
            said.append(f"{name}: {code} {error}")
    assert said == []


def test_models(tmp_path: Path) -> None:
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": (X[:, 2] > 0).astype(str)})
    path = tmp_path / "model.json"
    fit_model(table, label="y", model="logistic", budget=100).save(path)
    header = json.loads(path.read_text())
    about = {key: value for key, value in header.items() if key not in ("format", "version", "sha256")}

    def use(made: dict[str, Any]) -> None:
        path.write_text(stamp("model", {**made, "version": header["version"]}, {}))
        loaded = LinearModel.load(path)
        repr(loaded), str(loaded.certificate), loaded.predict(table)

    assert problems(tampered(about), use) == []


def stream(tmp_path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    made = StreamingCoreset(4, bandwidth=2.0, center=np.zeros(3))
    made.partial_fit(X).save(tmp_path / "stream.npz")
    header, arrays = arrays_of(tmp_path / "stream.npz")
    return {key: value for key, value in header.items() if key not in ("format", "sha256")}, arrays


def used_stream(path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    with path.open("wb") as file:
        write_npz(file, {"header": stamp("stream", header, arrays)}, arrays)
    loaded = StreamingCoreset.load(path)
    loaded.coreset()
    loaded.partial_fit(X[:50]).coreset()
    loaded.save(path)


def test_headers_of_streams(tmp_path: Path) -> None:
    header, arrays = stream(tmp_path)
    inside = {key: header[key] for key in ("parameters", "state", "nodes")}
    again = tmp_path / "again.npz"
    assert problems(tampered(inside), lambda made: used_stream(again, {**header, **made}, arrays)) == []


def test_arrays_of_streams(tmp_path: Path) -> None:
    header, arrays = stream(tmp_path)

    def cases() -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        for name, values in arrays.items():
            wrongs = [values[:0], values[:1], values[None], values.astype("U5"), values.astype(complex), -values - 1]
            wrongs += [values * np.nan, np.concatenate([values, values]), values.astype(np.float16), values * 0]
            wrongs += [values.astype(np.float64) * 1e308, values[::-1]]
            for number, wrong in enumerate(wrongs):
                yield f"{name} {number}", {**arrays, name: wrong}
            yield f"{name} gone", {key: arrays[key] for key in arrays if key != name}

    with np.errstate(all="ignore"):
        made = list(cases())
    assert problems(iter(made), lambda arrays: used_stream(tmp_path / "again.npz", header, arrays)) == []


def test_configurations_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    options = "--dataset digits --model mlp --width 4 --budget 20 --epochs 1 --device cpu --quiet"
    assert main(["train", *options.split(), "--out", str(out)]) == 0
    capsys.readouterr()
    said = []
    for file in ("config.json", "result.json"):
        kept = (out / file).read_text()
        for name, made in tampered(json.loads(kept)):
            if any(part in name for part in ("software", "history")):
                continue
            if "'text'" not in name and "KeyError" not in name and "10000" not in name and "= []" not in name:
                continue
            (out / file).write_text(json.dumps(made))
            code = main(["train", "--resume", str(out), "-q"])
            error = capsys.readouterr().err
            if code not in (0, 1, 2) or "unexpected" in error or (code and len(error.splitlines()) != 1):
                said.append(f"{file} {name}: {code} {error[-300:]}")
        (out / file).write_text(kept)
    assert said == []


def test_the_fuzz_sees_other_errors() -> None:
    def use(made: Any) -> None:
        made["a"]["b"] + 1

    assert problems(tampered({"a": {"b": 1}}), use) != []
