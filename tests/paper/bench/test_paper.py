"""The paper's figures: transcribed once, and checked against sums that were taken from its source in another way."""

import tomllib
from decimal import Decimal
from importlib.resources import files

import pytest

from coresift.selection import registry
from paper.bench.paper import Printed, paper_figures
from paper.bench.protocol import load_protocol, table_names

# Of all numbers of a table in the paper's LaTeX, in the order they stand there: how many rows, and their sum.
SUMS = {
    ("mnist", "table:mnist", "accuracy"): (14, "5523.678"),
    ("mnist", "table:mnist", "hours"): (14, "9.33542"),
    ("mnist", "tab:data_sel_mnist_std", "deviation"): (15, "5.3344"),
    ("cifar10", "table:cifar10resnet", "accuracy"): (8, "2872.48"),
    ("cifar10", "table:cifar10resnet", "hours"): (8, "45.2156"),
    ("cifar10", "table:cifar10resnet_warm", "accuracy"): (8, "2919.39"),
    ("cifar10", "table:cifar10resnet_warm", "hours"): (8, "43.5759"),
    ("cifar10", "tab:data_sel_cifar10_std", "deviation"): (15, "9.8007"),
    ("cifar100", "table:cifar100resnet", "accuracy"): (8, "1874.08"),
    ("cifar100", "table:cifar100resnet", "hours"): (8, "49.5542"),
    ("cifar100", "table:cifar100resnet_warm", "accuracy"): (8, "2184.24"),
    ("cifar100", "table:cifar100resnet_warm", "hours"): (8, "47.7723"),
    ("cifar100", "tab:data_sel_cifar100_std", "deviation"): (15, "11.7550"),
    ("imagenet", "table:imagenet2012resnet", "accuracy"): (6, "275.414"),
    ("imagenet", "table:imagenet2012resnet", "hours"): (6, "362.24"),
}
TABLES = ("mnist", "cifar10", "cifar100", "imagenet")


def test_sums_and_sizes_of_every_table() -> None:
    found = {}
    for table in TABLES:
        text = (files("paper.bench") / "paper" / f"{table}.toml").read_text(encoding="utf-8")
        for source in tomllib.loads(text, parse_float=Decimal)["source"]:
            for quantity in ("accuracy", "deviation", "hours"):
                if quantity in source:
                    rows = source[quantity].values()
                    found[table, source["label"], quantity] = (len(rows), str(sum(map(sum, rows))))
    assert found == SUMS


@pytest.mark.parametrize(
    ("table", "method", "budget", "printed"),
    [
        ("mnist", "FULL", 0.01, Printed(99.35, 0.012, 0.82)),
        ("mnist", "RANDOM", 0.01, Printed(94.55, 0.215, 0.0084)),
        ("mnist", "RANDOM-WARM", 0.10, Printed(99.13, 0.103, 0.085)),
        ("mnist", "GLISTER", 0.03, Printed(98.062, 0.218, 0.0625)),
        ("mnist", "CRAIG", 0.05, Printed(97.81, 0.162, 0.434)),
        ("mnist", "CRAIGPB", 0.01, Printed(97.72, 0.021, 0.08352)),
        ("mnist", "CRAIGPB-WARM", 0.03, Printed(99.08, 0.0192, 0.077)),
        ("mnist", "GRADMATCH", 0.01, Printed(98.954, 0.156, 0.05)),
        ("mnist", "GRADMATCHPB-WARM", 0.10, Printed(99.31, 0.0092, 0.10)),
        ("mnist", "RBF", 0.01, Printed(98.98, 0.18, 0.028)),
        ("mnist", "RBF", 0.10, Printed(99.32, 0.1, 0.098)),
        ("mnist", "RBF-WARM", 0.05, Printed(None, 0.05, None)),  # a deviation without a mean
        ("cifar10", "FULL", 0.30, Printed(95.09, 0.032, 4.34)),
        ("cifar10", "GLISTER", 0.10, Printed(91.92, 0.107, 0.91)),
        ("cifar10", "CRAIG", 0.30, Printed(92.53, 0.1647, 2.399)),
        ("cifar10", "CRAIG-WARM", 0.05, Printed(84.48, 0.123, 0.6636)),
        ("cifar10", "GRADMATCHPB", 0.20, Printed(93.34, 0.0542, 1.09)),
        ("cifar10", "RBF", 0.05, Printed(86.9, 0.25, 0.28)),
        ("cifar10", "RBF-WARM", 0.30, Printed(94.6, 0.12, 1.36)),
        ("cifar100", "FULL", 0.05, Printed(75.37, 0.051, 4.871)),
        ("cifar100", "RANDOM", 0.20, Printed(49.6, 0.671, 0.92)),
        ("cifar100", "GLISTER-WARM", 0.20, Printed(62.14, 0.121, 1.06)),
        ("cifar100", "CRAIGPB-WARM", 0.30, Printed(73.79, 0.111, 1.5567)),
        ("cifar100", "RBF", 0.05, Printed(54.17, 0.3, 0.346)),
        ("cifar100", "RBF-WARM", 0.10, Printed(67.8, 0.14, 0.5710)),
        ("imagenet", "FULL", 0.05, Printed(70.36, None, 276.28)),
        ("imagenet", "RANDOM", 0.05, Printed(21.124, None, 14.12)),
        ("imagenet", "RBF", 0.05, Printed(47.26, None, 15.24)),
    ],
)
def test_what_is_printed(table: str, method: str, budget: float, printed: Printed) -> None:
    assert paper_figures(table).at(method, budget) == printed


@pytest.mark.parametrize("table", TABLES)
def test_names_and_budgets_are_those_of_our_table(table: str) -> None:
    figures, protocol = paper_figures(table), load_protocol(table)
    assert figures.budgets == protocol.budgets
    assert set(figures.methods) <= {method.name for method in protocol.methods} <= set(registry())
    assert all(source.caption.startswith("Data Selection Results for") for source in figures.sources)


def test_full_is_the_same_at_every_budget_and_speed_ups_follow_from_hours() -> None:
    figures = paper_figures("mnist")
    assert figures.at("FULL", 1.0) == figures.at("FULL", 0.05)
    assert figures.speed_up("FULL", 1.0) == 1.0
    assert figures.speed_up("RBF", 0.01) == 0.82 / 0.028
    assert figures.speed_up("RBF-WARM", 0.01) is None  # no hours printed
    assert figures.at("RBF", 0.02) is figures.at("ADAPTIVE-RANDOM", 0.01) is None


@pytest.mark.parametrize("table", ["covtype", "fashion-mnist"])
def test_a_table_that_the_paper_does_not_have_is_empty(table: str) -> None:
    assert table in table_names()
    figures = paper_figures(table)
    assert (figures.sources, figures.methods, figures.budgets) == ((), (), ())
    assert figures.at("FULL", 1.0) is figures.speed_up("FULL", 1.0) is None
