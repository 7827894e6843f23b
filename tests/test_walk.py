"""One ``coresift select``: how many modules it enters, and how often it checks an option."""

import subprocess
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coresift import select
from coresift.coresets import SelectOptions
from tools.walk import walk

MOST_MODULES = 24


def test_a_selection_enters_few_modules() -> None:
    functions = walk()
    modules = {module for module, _ in functions}
    assert {"cli/select.py", "rows/opening.py", "coresets/selecting.py", "coresets/files.py"} <= modules
    assert len(modules) <= MOST_MODULES, sorted(modules)


@pytest.mark.parametrize("method", ["keys", "iid"])
def test_options_are_checked_once(method: str) -> None:
    checked: Counter[str] = Counter()

    def note(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        # other modules check what they are given: a Coreset its fields, `sample` its arguments
        if event == "call" and code.co_name in ("check_choice", "check_count", "check_number", "check_budget"):
            caller = frame.f_back
            while Path(caller.f_code.co_filename).name == "_validation.py":
                caller = caller.f_back
            if Path(caller.f_code.co_filename).name == "options.py":
                checked[frame.f_locals["name"]] += 1

    sys.setprofile(note)
    try:
        select(np.random.default_rng(0).standard_normal((500, 3)), "10%", bandwidth=3.0, method=method)
    finally:
        sys.setprofile(None)
    # max_exact is the estimator's; the rest are words and switches that are read, not checked
    assert set(checked) - {"max_exact"} == {f.name for f in fields(SelectOptions)} - {
        "eps",
        "per_class",
        "normalize",
        "max_memory",
        "strategy",
        "model",
        "power",
        "alpha",
        "threshold",
        "calibrate",
    }
    assert checked.pop("budget") == 2  # before rows are opened, and then against their number
    assert set(checked.values()) == {1}


@pytest.mark.parametrize("method", ["keys", "systematic"])
def test_a_selection_from_files_imports_neither_scikit_learn_nor_scipy(tmp_path: Path, method: str) -> None:
    """Their imports took a third of the time of the command."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((500, 3)))
    options = f"-X importtime -m coresift select {tmp_path / 'x.npy'} -b 20 --method {method} --bound closed-form"
    command = [sys.executable, *options.split(), "--out", str(tmp_path / "core.npz")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    imported = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert "coresift.coresets.selecting" in imported
    assert not imported & {"sklearn", "pandas", "scipy"}
