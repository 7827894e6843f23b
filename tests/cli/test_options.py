"""A dataclass as the options of a command."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from coresift import InvalidInputError
from coresift.cli.app import Config, Settings, run, with_common_options


@dataclass(frozen=True)
class Cooking:
    """Options of a command, a function and a file."""

    minutes: int = field(default=10, metadata={"help": "How long.", "min": 1, "flags": ("-m",)})
    amount: int | float | str = field(default="10%", metadata={"help": "How much."})
    heat: str = field(default="low", metadata={"help": "How hot.", "choices": ("low", "high")})
    limit: float | None = field(default=None, metadata={"help": "At most."})
    salted: bool = field(default=True, metadata={"help": "With salt."})
    is_covered: bool = field(default=False, metadata={"help": "With a lid.", "flags": ("--lid",)})
    taster: Any = None  # not an option of the command: it has no help


@pytest.fixture
def cook(tmp_path: Path):
    calls: list[Any] = []

    def command(settings: Settings, dish: str, how: Cooking, config: Config = None) -> None:
        calls.append((dish, how, settings.given))

    def other(settings: Settings, portions: Annotated[int, typer.Option()] = 1) -> None: ...

    app = typer.Typer(name="kitchen", rich_markup_mode=None)
    for function in (command, other):
        app.command()(with_common_options(function))

    def call(*arguments: str) -> Any:
        code = run(app, ["command", *arguments])
        return calls.pop() if code == 0 and calls else code

    return call


def test_fields_are_options_with_their_defaults(cook) -> None:
    assert cook("soup") == ("soup", Cooking(), frozenset({"dish"}))
    dish, how, given = cook("soup", "-m", "3", "--amount", "7", "--no-salted", "--lid", "--limit", "2", "-q")
    assert (dish, how) == ("soup", Cooking(3, "7", "low", 2.0, False, True))
    assert given >= {"minutes", "amount", "salted", "is_covered", "limit"}
    assert "heat" not in given


def test_wrong_values_are_wrong_usage(cook, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["-m", "0"], ["--minutes", "x"], ["--taster", "me"], ["--no-is-covered"]):
        assert cook("soup", *wrong) == 2
    assert cook("--help") == 0
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("How long.", "low|high", "--no-salted", "[default: 10%]"))


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("minutes = 3 is too few: heat='high' or limit=2.5.", "--minutes = 3 is too few: --heat high or --limit 2.5."),
        ("burnt (salted=True, is_covered=True)", "burnt (--salted, --lid)"),
        ("salted=False helps, is_covered=False does not", "--no-salted helps, is_covered=False does not"),
        ("dish = 3 and sauce='red' are no options", "dish = 3 and sauce='red' are no options"),
        ("heat=high/minutes=3/x.csv: no such file", "heat=high/minutes=3/x.csv: no such file"),
        ("no column 'heat=high'", "no column 'heat=high'"),
    ],
)
def test_messages_name_options_as_they_are_on_the_command_line(
    message: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(settings: Settings, dish: str, how: Cooking) -> None:
        raise InvalidInputError(message)

    app = typer.Typer(name="kitchen", rich_markup_mode=None)
    app.command()(with_common_options(command))
    assert run(app, ["soup"]) == 1
    assert capsys.readouterr().err == f"kitchen: error: {shown}\n"


def test_a_file_gives_defaults(cook, tmp_path: Path) -> None:
    (tmp_path / "how.toml").write_text('minutes = 5\nheat = "high"\nsalted = false\n')
    _, how, given = cook("soup", "--config", str(tmp_path / "how.toml"), "--heat", "low")
    assert how == Cooking(5, "10%", "low", salted=False)
    assert given >= {"minutes", "heat", "salted"}
