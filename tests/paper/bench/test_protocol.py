"""The declared tables, and their runs."""

import pytest
from hypothesis import given, strategies as st

from coresift import InvalidInputError
from coresift.selection import registry
from paper.automatic import strategies
from paper.bench.protocol import Run, load_protocol, table_names

OF_THE_PAPER = ("mnist", "cifar10", "cifar100", "imagenet")


def test_the_papers_tables_come_first() -> None:
    assert table_names()[:4] == OF_THE_PAPER


@pytest.mark.parametrize(
    ("table", "epochs", "budgets", "model"),
    [
        ("mnist", 200, (0.01, 0.03, 0.05, 0.10), "lenet"),
        ("cifar10", 300, (0.05, 0.10, 0.20, 0.30), "resnet18"),
        ("cifar100", 300, (0.05, 0.10, 0.20, 0.30), "resnet18"),
    ],
)
def test_the_default_is_what_the_paper_prints(table: str, epochs: int, budgets: tuple, model: str) -> None:
    protocol = load_protocol(table)
    assert (protocol.scale, protocol.seeds, protocol.select_every) == ("paper", 5, 20)
    assert protocol.budgets == budgets
    expected = {"epochs": epochs, "model": model, "batch_size": 20, "lr": 0.01, "momentum": 0.9}
    assert expected.items() <= protocol.training.items()
    assert (protocol.training["weight_decay"], protocol.training["schedule"]) == (5e-4, "cosine")
    labels = {str(method) for method in protocol.methods}
    base = {"RANDOM", "GLISTER", "CRAIG", "CRAIGPB", "GRADMATCH", "GRADMATCHPB", "RBF"}
    ours = {"ADAPTIVE-RANDOM", "ADAPTIVE-RANDOM@1", "RBF@1"}
    assert labels == {"FULL"} | base | {f"{name}-WARM" for name in base} | ours


def test_fashion_mnist_compares_the_methods_of_covtype_in_short_runs() -> None:
    ours, theirs = load_protocol("fashion-mnist"), load_protocol("covtype", "all-methods")
    assert [str(method) for method in ours.methods] == [str(method) for method in theirs.methods]
    assert (len(ours.methods), ours.budgets, ours.seeds, ours.select_every) == (31, (0.05,), 3, 10)
    mnist = load_protocol("mnist").training
    assert {name for name in mnist if ours.training[name] != mnist[name]} == {"epochs"}


def test_a_method_may_get_fewer_seeds() -> None:
    protocol = load_protocol("cifar10", "cpu")
    seeds = {name: {run.seed for run in protocol.runs() if run.method == name} for name in ("FULL", "RBF", "RS2")}
    assert seeds == {"FULL": {0, 1, 2}, "RBF": {0, 1, 2}, "RS2": {0, 1}}
    assert (protocol.seeds_of("RBF"), protocol.seeds_of("RS2")) == (3, 2)
    assert {run.seed for run in protocol.narrowed(["RS2@1"], seeds=4).runs()} == {0, 1, 2, 3}


@pytest.mark.parametrize("table", table_names())
def test_every_table_can_be_run_in_all_its_scales(table: str) -> None:
    for scale in ("paper", "smoke"):
        protocol = load_protocol(table, scale)
        assert {method.name for method in protocol.methods} <= strategies().keys()
        assert protocol.assumptions
        assert bool(protocol.scale_note) == (scale != "paper")


@pytest.mark.parametrize(
    ("table", "scale", "first", "title"),
    [
        ("mnist", "paper", "0aa6a526a1d7", ""),
        ("mnist", "equal-time", "30fd717bb3bc", "uniform redraws for longer"),
        ("covtype", "equal-time-probe-5", "ae23d0a0b869", "uniform redraws for longer"),
        ("cifar10", "cpu", "efdbbdf3358e", "narrow ResNet-9"),
    ],
)
def test_what_a_scale_is_called_is_no_part_of_what_names_a_record(
    table: str, scale: str, first: str, title: str
) -> None:
    """Stored records have these ids: a word more in a file must not lose them."""
    protocol = load_protocol(table, scale)
    assert protocol.runs()[0].id == first
    assert protocol.scale_title == title
    assert protocol.title == load_protocol(table).title
    assert not {"title", "note", "scale_title"} & protocol.config.keys()


@pytest.mark.parametrize("table", OF_THE_PAPER)
def test_what_the_paper_does_not_print_is_declared_as_it_is(table: str) -> None:
    said = " ".join(load_protocol(table).assumptions)
    assert "RANDOM is drawn once and kept" in said
    rbf, match, batches = (registry()[name] for name in ("RBF", "GRADMATCH", "GRADMATCHPB"))
    assert (rbf.bound, rbf.bandwidth, rbf.radius, rbf.features) == ("auto", None, 1.0, "raw")
    for words in ("raw pixels and no classes", "distance from the mean to the farthest", "within one bandwidth"):
        assert words in said
    ridges = (match.strategy.ridge, batches.strategy.ridge)
    assert f"the ridge of GRADMATCH is {ridges[0]:g}, of GRADMATCHPB {ridges[1]:g}" in said
    assert f"batches of {batches.batch_size}" in said
    glister = registry()["GLISTER"]
    is_run = any(method.name == "GLISTER" for method in load_protocol(table).methods)
    assert ("GLISTER takes steps of 0.01 and the best of pools of (n/k) ln 100" in said) == is_run
    assert (glister.eta, glister.epsilon) == (0.01, 1 / 100)
    assert ("No augmentation" in said) == (table == "mnist")


def test_full_is_one_cell_for_all_budgets() -> None:
    protocol = load_protocol("mnist").narrowed(["full", "rbf"], [0.01, 0.05], 2)
    cells = protocol.runs()
    assert [(cell.method, cell.budget, cell.seed) for cell in cells] == [
        ("RBF", 0.01, 0),
        ("RBF", 0.05, 0),
        ("RBF", 0.01, 1),
        ("RBF", 0.05, 1),
        ("FULL", 1.0, 0),
        ("FULL", 1.0, 1),
    ]


def test_a_narrowed_table_has_the_cells_of_the_whole_one() -> None:
    whole = {cell.id for cell in load_protocol("mnist").runs()}
    part = load_protocol("mnist").narrowed(["rbf@1", "Gradmatch_PB".replace("_", "")], [0.05], 3)
    assert len(part.runs()) == 6
    assert {cell.id for cell in part.runs()} <= whole
    other_scale = {cell.id for cell in load_protocol("mnist", "smoke").runs()}
    assert not whole & other_scale


def test_methods_are_told_apart_by_their_redraws() -> None:
    protocol = load_protocol("mnist").narrowed(["rbf", "RBF@1", "rbf@20"])
    assert [str(method) for method in protocol.methods] == ["RBF", "RBF@1"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"methods": ["nosuch"]}, "nosuch.*choose from FULL"),
        ({"methods": ["rbf@often"]}, "rbf@often"),
        ({"methods": ["rbf@0"]}, "at least 1"),
        ({"budgets": [0.0]}, "above 0"),
        ({"budgets": [1.5]}, "at most 1"),
        ({"budgets": [float("nan")]}, "nan"),
        ({"seeds": 0}, "seeds"),
    ],
)
def test_what_cannot_be_run_is_refused(change: dict, complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        load_protocol("mnist").narrowed(**change)


def test_unknown_tables_and_scales_are_named_with_those_there_are() -> None:
    with pytest.raises(InvalidInputError, match=r"mnst.*mnist, cifar10"):
        load_protocol("mnst")
    with pytest.raises(InvalidInputError, match=r"huge.*paper, equal-time, mnist-net, smoke"):
        load_protocol("mnist", "huge")


RUN = Run("mnist", 1, "paper", "RBF", 20, 0.01, 0)


@given(
    st.sampled_from(["table", "protocol", "scale", "method", "select_every", "budget", "seed"]), st.integers(2, 10**6)
)
def test_whatever_differs_gives_another_id(name: str, value: int) -> None:
    kind = type(getattr(RUN, name))
    other = Run(**{**vars(RUN), name: kind(value)})
    assert (other.id == RUN.id) == (other == RUN)
    assert Run(**vars(other)).id == other.id
