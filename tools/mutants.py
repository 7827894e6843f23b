"""Mutation testing: do the tests notice small faults in the package?

    python tools/mutants.py baseline core tests/core tests/test_certify.py
    python tools/mutants.py run core --sample 150 [--seed 0] [--budget 10] [--again]
    python tools/mutants.py report

``baseline`` runs tests under coverage and remembers which test reaches which line of ``src/coresift/core``, and how
long it takes. ``run`` draws mutants (``mutations.py``) of that folder, all equally likely: a larger sample contains the
smaller ones of its seed. Each mutant is tried on the tests that reach its line, those of the module's own test file
first, then the quickest, until one fails or ``--budget`` seconds of processor time are used up. Results are lines of
``paper/results/mutation/core.jsonl``; what is there already is not run again, but ``--again`` runs the survivors on
the current tests. ``report`` prints the shares with Wilson's 95 % intervals, and the survivors.

The working tree is not touched: the faults go into a copy of ``src``, and the tests run in forks of a process that has
NumPy, SciPy and Torch loaded but not the package, so that a mutant costs the time of its tests. A process that exceeds
its limits of time and memory has noticed the fault. Before anything else the unchanged copy must pass.

mutmut 3 and cosmic-ray 8 were looked at. Neither has an option for a random sample; the first leaves faults at module
level out, the second changes the working tree and starts a new interpreter for each mutant.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import importlib
import json
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from mutations import Mutant, mutants_of, mutated

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "paper" / "results" / "mutation"
BASELINES = ROOT / "build" / "mutation"
HEAVY = ("numpy", "scipy.stats", "scipy.optimize", "sklearn.base", "sklearn.cluster", "pandas", "hypothesis", "torch")
MEMORY = 8 << 30  # bytes of address space beyond what the parent has
CONTROL_SECONDS = 2.0


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: "killed", "timeout" (noticed, too) or "survived"; and the test that noticed it."""

    result: str
    by: str
    n_tests: int
    seconds: float


class Baseline:
    """Which tests reach which lines, and their seconds of processor time."""

    def __init__(self, package: str) -> None:
        path = BASELINES / f"{package}.json"
        if not path.exists():
            sys.exit(f"there is no {path.relative_to(ROOT)}: run `baseline {package} TESTS...` first")
        stored = json.loads(path.read_text())
        self.seconds: dict[str, float] = stored["seconds"]
        self._lines: dict[str, dict[str, list[str]]] = stored["lines"]
        reaching = {test for lines in self._lines.values() for tests in lines.values() for test in tests}
        self._idle = set(self.seconds) - reaching

    def tests_of(self, module: str, mutant: Mutant, budget: float) -> list[str]:
        """Tests that reach the statement, in the order to run them.

        A statement that runs on import is reached by those that reach any line of the module, and by those that reach
        no line of the package at all: they look at what import has left, such as the defaults of a signature.
        """
        lines = self._lines.get(module, {})
        first, last = mutant.lines
        wanted = lines if mutant.is_module_level else [str(line) for line in range(first, last + 1)]
        reached = {test for line in wanted for test in lines.get(line, ())}
        if mutant.is_module_level:
            reached |= self._idle
        stem = Path(module).stem.lstrip("_")

        def order(test: str) -> tuple[bool, float, str]:
            return (not Path(test.partition("::")[0]).stem.startswith(f"test_{stem}"), self.seconds[test], test)

        chosen: list[str] = []
        spent = 0.0
        for test in sorted(reached, key=order):
            if chosen and spent + self.seconds[test] > budget:
                continue
            chosen.append(test)
            spent += self.seconds[test]
        return chosen


class Measure:
    """Pytest plugin of ``baseline``: a coverage context and the processor time of each test."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Around setup, call and teardown."""
        self.coverage.switch_context(item.nodeid)
        begun = _processor_time()
        result = yield
        self.seconds[item.nodeid] = round(_processor_time() - begun, 3)
        self.coverage.switch_context("")
        return result


class Choose:
    """Pytest plugin of ``run``: only these tests, in this order; and what failed first."""

    def __init__(self, tests: list[str]) -> None:
        self.rank = {test: i for i, test in enumerate(tests)}
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Select and sort."""
        items[:] = sorted((item for item in items if item.nodeid in self.rank), key=lambda item: self.rank[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that no longer imports is a failure, too."""
        if report.failed and not self.failed:
            self.failed = f"collection of {report.nodeid}"


def baseline(package: str, tests: list[str]) -> int:
    """Run tests under coverage, keep which lines each reaches."""
    coverage: Any = importlib.import_module("coverage")
    BASELINES.mkdir(parents=True, exist_ok=True)
    source = ROOT / "src" / "coresift" / package
    tracer = coverage.Coverage(data_file=None, branch=True, source=[str(source)], config_file=False)
    plugin = Measure(tracer)
    tracer.start()
    code = pytest.main(["-q", "-n0", "-p", "no:cacheprovider", *tests], plugins=[plugin])
    tracer.stop()
    data = tracer.get_data()
    lines = {
        str(Path(file).relative_to(ROOT)): {
            str(line): sorted(c for c in contexts if c) for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in sorted(data.measured_files())
    }
    stored = {"seconds": plugin.seconds, "lines": lines}
    (BASELINES / f"{package}.json").write_text(json.dumps(stored))
    print(f"{len(plugin.seconds)} tests, {sum(plugin.seconds.values()):.0f} s of processor time")
    tracer.report(show_missing=True)
    return int(code)


def run(package: str, sample: int, seed: int, budget: float, is_again: bool) -> int:
    """Try a sample of mutants, append what became of each."""
    reached = Baseline(package)
    files = sorted((ROOT / "src" / "coresift" / package).rglob("*.py"))
    drawn = [(str(file.relative_to(ROOT)), m) for file in files for m in mutants_of(file.read_text())]
    population = len(drawn)
    # By hash: the sample of a module is the same whatever is changed in the others.
    drawn.sort(key=lambda place: sha256(f"{seed} {place[0]} {place[1].key} {place[1].after}".encode()).digest())
    path = RESULTS / f"{package}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {_name(record): record for record in _records(path)}
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        copy = Path(scratch) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(copy, quiet=1)
        everything = sorted(reached.seconds, key=lambda test: reached.seconds[test])
        control = _try(copy, _within(everything, reached.seconds, CONTROL_SECONDS), CONTROL_SECONDS)
        if control.result != "survived":
            sys.exit(f"the unchanged copy fails: {control}")
        for i, (module, mutant) in enumerate(drawn[:sample]):
            before = known.get(f"{module} {mutant.key} {mutant.after}")
            if before is not None and not (is_again and before["result"] == "survived"):
                continue
            tests = reached.tests_of(module, mutant, budget)
            source = (ROOT / module).read_text()
            outcome = Outcome("survived", "no test reaches it", 0, 0.0)
            if tests:
                with _planted(copy.parent / module, mutated(source, mutant), source):
                    outcome = _try(copy, tests, budget)
            record = _record(package, population, seed, module, mutant, outcome)
            known[_name(record)] = record
            with path.open("a") as lines:
                lines.write(json.dumps(record) + "\n")
            print(f"{i + 1}/{sample} {outcome.result:8} {module}:{mutant.lines[0]} {mutant.before} -> {mutant.after}")
            sys.stdout.flush()
    # Of what has been tried before, in other states of the modules or with other seeds, nothing is kept.
    names = [f"{module} {mutant.key} {mutant.after}" for module, mutant in drawn[:sample]]
    _rewrite(path, [known[name] for name in names])
    return report()


def _within(tests: list[str], seconds: dict[str, float], budget: float) -> list[str]:
    chosen, spent = [], 0.0
    for test in tests:
        spent += seconds[test]
        if spent > budget:
            break
        chosen.append(test)
    return chosen


@contextlib.contextmanager
def _planted(file: Path, text: str, original: str) -> Iterator[None]:
    """The fault in the copy; its compiled file goes, for its date may be the same second's."""
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_text(original)


def _try(copy: Path, tests: list[str], budget: float) -> Outcome:
    """Run the tests on the copy in a fork."""
    begun = time.monotonic()
    note = copy.parent / "failed"
    note.write_text("")
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = 99
        try:
            code = _tests_on(copy, tests, budget, note)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    limit = 30 * (budget + 20)  # for one that sleeps: a busy machine is no reason
    ended = None
    try:
        while ended is None and time.monotonic() - begun < limit:
            time.sleep(0.02)
            ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)  # with the workers that a test has left behind
        _, status, usage = os.wait4(child, 0)
    seconds = round(usage.ru_utime + usage.ru_stime, 2)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return Outcome("survived", "", len(tests), seconds)
    if code in (99, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR):
        sys.exit(f"the tests could not be run (code {code}): {(copy.parent / 'output').read_text()[-2000:]}")
    return Outcome("timeout" if code < 0 else "killed", note.read_text(), len(tests), seconds)


def _tests_on(copy: Path, tests: list[str], budget: float, note: Path) -> int:
    used = int(_processor_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + int(3 * budget) + 5, used + int(3 * budget) + 10))
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    output = os.open(copy.parent / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(ROOT)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(copy))
    os.environ["PYTHONPATH"], os.environ["PYTHONDONTWRITEBYTECODE"] = str(copy), "1"
    plugin = Choose(tests)
    files = sorted({test.partition("::")[0] for test in tests})
    # No rewriting of assertions, and of the plugins hypothesis' alone: half of the time of most mutants.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-x", "-q", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin"]
    code = int(pytest.main([*options, *files], plugins=[plugin]))
    note.write_text(plugin.failed)
    package = sys.modules.get("coresift")
    if package is not None and not str(package.__file__).startswith(str(copy)):
        return 99  # the tests saw the working tree, not the copy
    return code


def _processor_time() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _record(package: str, population: int, seed: int, module: str, mutant: Mutant, outcome: Outcome) -> dict[str, Any]:
    place = {"package": package, "population": population, "seed": seed, "module": module, "key": mutant.key}
    fault = {"line": mutant.lines[0], "operator": mutant.operator, "before": mutant.before, "after": mutant.after}
    return place | fault | vars(outcome)


def _name(record: dict[str, Any]) -> str:
    return f"{record['module']} {record['key']} {record['after']}"


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _rewrite(path: Path, records: list[dict[str, Any]]) -> None:
    """One line for each mutant, the newest."""
    scratch = path.with_suffix(".tmp")
    scratch.write_text("".join(json.dumps(record) + "\n" for record in sorted(records, key=_name)))
    scratch.replace(path)


def wilson(killed: int, tried: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share."""
    share, weight = killed / tried, z * z / tried
    centre = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / tried + weight / (4 * tried))
    return centre - half, centre + half


def report() -> int:
    """Shares and survivors of all results, as Markdown."""
    for path in sorted(RESULTS.glob("*.jsonl")):
        records = _records(path)
        tried = Counter(record["module"] for record in records)
        dead = Counter(record["module"] for record in records if record["result"] != "survived")
        low, high = wilson(dead.total(), tried.total())
        print(f"\n{path.stem}: {dead.total()} of {tried.total()} noticed, {dead.total() / tried.total():.1%} ", end="")
        print(f"(95 %: {low:.1%} to {high:.1%}), of {records[0]['population']} mutants\n")
        print("| module | tried | noticed |\n|---|---:|---:|")
        for module in sorted(tried):
            print(f"| {Path(module).name} | {tried[module]} | {dead[module]} |")
        print()
        for record in records:
            if record["result"] == "survived":
                place = f"{Path(record['module']).name}:{record['line']}"
                print(f"* {place} `{record['before']}` -> `{record['after']}` ({record['by']})")
    return 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("baseline", help="which tests reach which lines")
    measure.add_argument("package")
    measure.add_argument("tests", nargs="+")
    trial = commands.add_parser("run", help="try mutants")
    trial.add_argument("package")
    trial.add_argument("--sample", type=int, default=150)
    trial.add_argument("--seed", type=int, default=0)
    trial.add_argument("--budget", type=float, default=10.0, help="seconds of processor time for a mutant's tests")
    trial.add_argument("--again", action="store_true", help="run survivors again")
    commands.add_parser("report", help="shares and survivors")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the fork and the copy go, too
    if chosen.command == "baseline":
        return baseline(chosen.package, chosen.tests)
    if chosen.command == "run":
        return run(chosen.package, chosen.sample, chosen.seed, chosen.budget, chosen.again)
    return report()


if __name__ == "__main__":
    sys.exit(main())
