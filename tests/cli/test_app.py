"""The command line as its users meet it: exit codes, one-line errors, pipes, terminals, interrupts."""

import logging
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import coresift
from coresift import InvalidInputError
from coresift.cli import app as _app, main, options as _options

COMMAND = [sys.executable, "-m", "coresift"]


@pytest.fixture
def with_command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[_options.Settings], None]], None]:
    """Add a command ``probe`` to the application for one test."""
    monkeypatch.setattr(_app.app, "registered_commands", list(_app.app.registered_commands))
    logger = logging.getLogger("coresift")
    for name in ("handlers", "level", "propagate"):
        monkeypatch.setattr(logger, name, getattr(logger, name))

    def add(function: Callable[[_options.Settings], None]) -> None:
        _app.app.command(name="probe")(_options.with_common_options(function))

    return add


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that a selection with many cells takes some time over."""
    file = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(file, np.random.default_rng(0).standard_normal((100_000, 16)))
    return file


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"coresift {coresift.__version__}\n"


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out, err = capsys.readouterr()
    for name in ("select", "audit", "certify", "train", "datasets"):
        assert f"\n  {name} " in out
    assert err == ""


def test_no_command_is_wrong_usage_and_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "select" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"],
        ["--nosuch"],
        ["datasets", "--nosuch"],
        ["datasets", "extra"],
        ["select", "x.npy", "--workers", "0"],
        ["select", "x.npy", "--workers", "x"],
        ["select", "x.npy", "--seed", "-1"],
        ["select", "x.npy", "--budget"],
    ],
)
def test_wrong_usage_is_one_line_and_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"coresift: error: .+\n", err)


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        (["selct"], "'selct'. Did you mean 'select'? Try 'coresift --help'."),
        (["--nosuch"], "--nosuch. Try 'coresift --help'."),
        (["select", "--nosuch"], ". Try 'coresift select --help'."),
        (["select", "x.npy", "-b", "5"], "(or --dry-run). Try 'coresift select --help'."),
        (["certify", "x.npy", "y.npz", "--sampled", "0"], ". Try 'coresift certify --help'."),
    ],
)
def test_the_hint_names_the_help_of_the_command(
    arguments: list[str], end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.endswith(f"{end}\n")
    assert not re.search(r"[.?!][.?!]", err)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InvalidInputError("radius=-1 must be\n   > 0"), "coresift: error: radius=-1 must be > 0\n"),
        (FileNotFoundError(2, "No such file", "x.npz"), "coresift: error: [Errno 2] No such file: 'x.npz'\n"),
        (
            ZeroDivisionError("by zero"),
            "coresift: error: ZeroDivisionError: by zero (unexpected; --debug shows where)\n",
        ),
    ],
)
def test_errors_are_one_line(error: Exception, line: str, with_command, capsys: pytest.CaptureFixture[str]) -> None:
    def probe(settings: _options.Settings) -> None:
        raise error

    with_command(probe)
    assert main(["probe"]) == 1
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize("arguments", [["--debug", "probe"], ["probe", "--debug"]])
def test_debug_shows_the_traceback(arguments, with_command, capsys: pytest.CaptureFixture[str]) -> None:
    def probe(settings: _options.Settings) -> None:
        raise InvalidInputError("radius")

    with_command(probe)
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("coresift: error: radius\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["probe"], ["warning", "error"]),
        (["-q", "probe"], ["error"]),
        (["probe", "--quiet"], ["error"]),
        (["-v", "probe"], ["info", "warning", "error"]),
        (["probe", "--verbose"], ["info", "warning", "error"]),
        (["-v", "probe", "-v"], ["debug", "info", "warning", "error"]),
        (["probe", "-vv"], ["debug", "info", "warning", "error"]),
    ],
)
def test_verbosity_is_that_of_the_logger(arguments, expected, with_command, capsys: pytest.CaptureFixture[str]) -> None:
    def probe(settings: _options.Settings) -> None:
        logger = logging.getLogger("coresift.somewhere")
        for level in ("debug", "info", "warning", "error"):
            getattr(logger, level)("a message of level %s.", level)

    with_command(probe)
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert re.findall(r"of level (\w+)\.", err) == expected


def test_interrupt_is_130(with_command) -> None:
    def probe(settings: _options.Settings) -> None:
        raise KeyboardInterrupt

    with_command(probe)
    assert main(["probe"]) == 130


@pytest.mark.slow
def test_ctrl_c_ends_a_running_command_with_130_and_no_traceback(rows: Path) -> None:
    process = subprocess.Popen(
        [
            *COMMAND,
            "select",
            str(rows),
            "-b",
            "1%",
            "--bound",
            "cells",
            "--cells",
            "4096",
            "-o",
            str(rows.parent / "out.npz"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    process.stderr.readline()  # the plan: the work begins
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra_one_line_names_it(module: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; from coresift.cli import main; sys.exit(main(['datasets']))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout == ""
    assert re.fullmatch(
        r'coresift: error: .*install coresift\[cli\] \(in a clone: pip install "\.\[cli\]"\)\n', result.stderr
    )


@pytest.mark.slow
def test_a_closed_pipe_is_silent() -> None:
    read, write = os.pipe()
    os.close(read)  # nobody will read
    process = subprocess.Popen([*COMMAND, "--help"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err == ""


def in_terminal(*arguments: str, **environment: str) -> tuple[str, str]:
    """What the command writes to a terminal as (stdout, stderr), one pseudo-terminal each."""
    pairs = [pty.openpty(), pty.openpty()]
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=pairs[0][1],
        stderr=pairs[1][1],
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment},
    )
    texts = [b"", b""]
    for _, child in pairs:
        os.close(child)
    deadline = time.monotonic() + 120
    for i in (1, 0):  # progress first: it is the one that could fill its buffer
        while time.monotonic() < deadline:
            try:
                chunk = os.read(pairs[i][0], 65536)
            except OSError:  # how Linux says that the other side is closed
                break
            if not chunk:
                break
            texts[i] += chunk
        os.close(pairs[i][0])
    assert process.wait(timeout=60) == 0
    return texts[0].decode(), texts[1].decode()


COLOUR = re.compile(r"\x1b\[[\d;]*(3[0-8]|4[0-8]|9[0-7])[\d;]*m")


@pytest.mark.slow
def test_a_terminal_gets_a_progress_bar_and_colours_unless_refused(rows: Path) -> None:
    command = ["select", str(rows), "-b", "1%", "-o", str(rows.parent / "out.npz"), "--force"]
    _, progress = in_terminal(*command)
    assert "survey" in progress
    assert COLOUR.search(progress)
    out, progress = in_terminal(*command, NO_COLOR="1")
    assert "survey" in progress
    assert not COLOUR.search(out + progress)
    _, progress = in_terminal("-q", *command)
    assert progress == ""


@pytest.mark.slow
def test_a_file_gets_plain_text() -> None:
    result = run("datasets", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert result.stderr == ""
    assert "\x1b" not in result.stdout
    assert result.stdout.isascii()
