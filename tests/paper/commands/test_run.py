"""``python -m paper run`` as its users meet it, on small files in the real layouts."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from coresift import InvalidInputError
from coresift.cli.app import Settings
from coresift.data.standard import CIFAR10, CIFAR100
from paper.__main__ import main
from paper.bench.protocol import load_protocol
from paper.bench.runner import Job, Progress
from paper.bench.store import Store
from paper.commands import parse_shares, run as command_module
from tests.tiny_data import cifar_files, write_files, write_images, write_mnist

torch.set_num_threads(1)


def records(results: Path, table: str) -> list[dict]:
    return Store(results, table).read().records


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "methods"),
    [
        ("cifar10", "adaptive-random,rbf@1,gradmatchpb,craigpb-warm,full"),
        ("cifar100", "adaptive-random,rbf@1,gradmatchpb,glister,full"),
    ],
)
def test_cifar_end_to_end(table: str, methods: str, tmp_path: Path, capsys) -> None:
    layout = {"cifar10": CIFAR10, "cifar100": CIFAR100}[table]
    write_files(tmp_path / table, cifar_files(layout, 40))
    command = ["run", table, "--data-dir", str(tmp_path), "--results", str(tmp_path / "results")]
    command += ["--scale", "smoke", "--methods", methods, "--budgets", "50%"]
    assert main(command) == 0
    assert "5 of 5 runs" in capsys.readouterr().out
    found = records(tmp_path / "results", table)
    assert {record["cell"]["method"] for record in found} == {
        name.partition("@")[0].upper() for name in methods.split(",")
    }
    assert all(record["config"]["model_options"] == {"width": 4} for record in found)
    assert all(record["cell"]["scale"] == "smoke" for record in found)


@pytest.mark.slow
def test_imagenet_end_to_end(tmp_path: Path, capsys) -> None:
    names = ["n01", "n02"]
    write_images(tmp_path / "imagenet" / "train", names, 4)
    write_images(tmp_path / "imagenet" / "val", names, 1)
    command = ["run", "imagenet", "--data-dir", str(tmp_path), "--results", str(tmp_path / "results")]
    command += [
        "--scale",
        "smoke",
        "--budgets",
        "50%",
        "--methods",
        "adaptive-random,rbf,gradmatch,gradmatchpb,craigpb",
    ]
    assert main(command) == 0
    assert "5 of 5 runs" in capsys.readouterr().out
    assert all(record["subset_size"] == 4 for record in records(tmp_path / "results", "imagenet"))


@pytest.mark.slow
def test_a_dry_run_tells_hours_and_memory_and_writes_nothing(tmp_path: Path, capsys) -> None:
    write_mnist(tmp_path / "mnist", n=(100, 20))
    command = ["run", "mnist", "--data-dir", str(tmp_path), "--results", str(tmp_path / "results")]
    assert main([*command, "--dry-run", "--methods", "rbf,full", "-j", "2"]) == 0
    printed = capsys.readouterr().out
    assert "25 runs, 0 done" in printed
    assert "hours in one process" in printed
    assert "in processor time; about" in " ".join(printed.split())
    assert " GB" in printed
    assert "Assumed: FULL is trained on batches as large as those of the subsets" in " ".join(printed.split())
    assert not (tmp_path / "results").exists()


def test_progress_is_told_where_no_terminal_is(tmp_path: Path, capsys) -> None:
    write_mnist(tmp_path / "mnist", n=(100, 20))
    command = ["run", "mnist", "--data-dir", str(tmp_path), "--results", str(tmp_path / "results")]
    command += ["--scale", "smoke", "--methods", "adaptive-random", "--budgets", "10%"]
    assert main(command) == 0
    assert "mnist: 0 done, 0 running here, 1 left or running elsewhere\n" in capsys.readouterr().err
    assert main([*command, "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_the_time_left_counts_what_others_finish_and_is_not_said_while_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = load_protocol("mnist", "smoke").narrowed(["random"], [0.1], 4)
    cells = protocol.runs()
    now = [0.0]
    monkeypatch.setattr(command_module.time, "monotonic", lambda: now[0])
    line = command_module._Line(Settings(quiet=True), Job(protocol, cells, Store(tmp_path, "mnist")))

    def said(progress: Progress) -> str:
        line.show(progress)
        return line.bars.tasks[0].fields["words"]

    now[0] = 60.0
    alone = Progress(4, frozenset(), {0: (cells[0], 0.5)})
    assert said(alone) == "0 done, 1 running here, 3 left or running elsewhere, about 7 min to go"
    shared = Progress(4, frozenset({cells[1].id}), {0: (cells[0], 0.5)})
    assert said(shared) == "1 done, 1 running here, 2 left or running elsewhere, about 2 min to go"
    for now[0] in (60.0, 600.0):
        idle = Progress(4, frozenset({cells[1].id}))
        assert said(idle) == "1 done, 0 running here, 3 left or running elsewhere"
    failed = Progress(4, frozenset({cells[1].id}), {0: (cells[0], 0.0)}, [(cells[2], "x"), (cells[3], "x")])
    assert said(failed).startswith("1 done, 1 running here, 0 left, 2 failed, about 10 min")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["mnst"], "table 'mnst' is unknown; choose from mnist, cifar10, cifar100, imagenet"),
        (["mnist", "--methods", "nosuch"], "method 'nosuch' is unknown"),
        (["mnist", "--budgets", "a lot"], "budget 'a lot'"),
        (["mnist", "--budgets", "200%"], "at most 1"),
        (["mnist", "--scale", "tiny"], "scale 'tiny' is unknown"),
        (["mnist", "--device", "cuda:99"], "device"),
    ],
)
def test_bad_requests_are_one_line(arguments: list[str], complaint: str, tmp_path: Path, capsys) -> None:
    assert main(["run", *arguments, "--data-dir", str(tmp_path)]) == 1
    printed = capsys.readouterr().err
    assert complaint in printed
    assert len(printed.splitlines()) == 1


def test_missing_data_are_said_before_anything_is_written(tmp_path: Path, capsys) -> None:
    results = tmp_path / "results"
    assert main(["run", "mnist", "--data-dir", str(tmp_path), "--results", str(results)]) == 1
    assert "mnist" in capsys.readouterr().err
    assert not list(results.rglob("*.jsonl"))


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys) -> None:
    write_mnist(tmp_path / "mnist", n=(100, 20))
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert main(["run", "mnist", "--data-dir", str(tmp_path), "--results", str(locked / "r")]) == 1
    assert "locked" in capsys.readouterr().err


def test_damage_and_other_versions_in_the_store_are_told(tmp_path: Path, capsys) -> None:
    write_mnist(tmp_path / "mnist", n=(100, 20))
    results = tmp_path / "results"
    command = ["run", "mnist", "--data-dir", str(tmp_path), "--results", str(results)]
    command += ["--scale", "smoke", "--methods", "adaptive-random", "--budgets", "10%"]
    assert main([*command, "-q"]) == 0
    store = Store(results, "mnist")
    (record,) = store.read().records
    from paper.bench.protocol import Run

    older = Run(**{**record["cell"], "protocol": 99})
    store.append({**record, "cell": vars(older), "id": older.id})
    with store.file.open("a") as file:
        file.write("{broken\n")
    capsys.readouterr()
    assert main(command) == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "line 3: left out" in printed
    assert "version 99 of the protocol" in printed
    assert len(store.read().records) == 2
    assert np.isfinite(json.loads(store.file.read_text().splitlines()[0])["test"]["accuracy"])


def test_a_percentage_is_the_fraction_that_it_means() -> None:
    """A cell of a table is known by its budget: 0.7 / 100 is another float than 0.007."""
    for tenths in range(1, 1000):
        assert parse_shares(f"{tenths / 10}%") == parse_shares(f"{tenths / 1000}") == [tenths / 1000]
    with pytest.raises(InvalidInputError, match="is not a share"):
        parse_shares("x%")
