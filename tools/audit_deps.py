"""Look at what is depended on: ``python tools/audit_deps.py [--offline]``, or ``make audit-deps``.

1. Installed packages agree with each other (``pip check``).
2. ``constraints.txt`` pins exact versions, and what is installed of them is installed in that version.
3. None of the pinned versions has a published vulnerability: asked of the advisory service by pip-audit, which is
   installed into an environment of its own, ``build/audit``.

Ends with 0 if all is well, 1 if something is wrong, and 3 if the service could not be asked; ``--offline`` leaves it
out on purpose.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import venv
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "constraints.txt"
PLACE = ROOT / "build" / "audit"
UNASKED = 3
_UNPINNED = {"pip", "setuptools", "wheel", "coresift"}


def pins(text: str) -> tuple[dict[str, str], list[str]]:
    """The versions that are pinned, by name; and the lines that pin nothing."""
    found, bad = {}, []
    for raw in text.splitlines():
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;,*]+)(\s*;.*)?", line)
        if match is None:
            bad.append(line)
        else:
            found[_canonical(match[1])] = match[2]
    return found, bad


def other_versions(pinned: dict[str, str], installed: dict[str, str]) -> list[str]:
    """What is pinned, and installed in another version; a build (``+cpu``) does not count."""
    return [
        f"{name} {version} is installed, {pinned[name]} is pinned in {PINS.name}"
        for name, version in sorted(installed.items())
        if name in pinned and pinned[name].partition("+")[0] != version.partition("+")[0]
    ]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _asked() -> int:
    """The code of pip-audit, or `UNASKED`."""
    python = PLACE / "bin" / "python"
    if not python.exists():
        venv.create(PLACE, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip-audit>=2.7"]
    if subprocess.run(install).returncode != 0:
        print("audit-deps: pip-audit could not be installed: vulnerabilities were not looked up.", file=sys.stderr)
        return UNASKED
    command = [str(python), "-m", "pip_audit", "--requirement", str(PINS), "--no-deps", "--disable-pip"]
    options = ["--timeout", "15", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    known, unknown = answers(done.stdout)
    for line in known:
        print(f"audit-deps: {line}", file=sys.stderr)
    if known:
        return 1
    if unknown or not done.stdout.strip():
        reason = unknown[0] if unknown else (done.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"audit-deps: {len(unknown) or 'all'} versions could not be looked up ({reason[:150]}).", file=sys.stderr)
        print("audit-deps: the offline checks passed; run this again where there is a network.", file=sys.stderr)
        return UNASKED
    print("audit-deps: no known vulnerabilities.")
    return 0


def answers(text: str) -> tuple[list[str], list[str]]:
    """Of what pip-audit says in JSON: vulnerabilities, and why a version was not looked up."""
    try:
        found = json.loads(text)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return [], []
    known = [
        f"{each['name']} {each['version']} has {one['id']}, fixed in {', '.join(one['fix_versions']) or 'nothing yet'}"
        for each in found
        for one in each.get("vulns", ())
    ]
    return known, [each["skip_reason"] for each in found if "skip_reason" in each]


def main() -> int:
    """All three steps, as far as they go."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--offline", action="store_true", help="do not ask the advisory service")
    chosen = parser.parse_args()
    problems = []
    check = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    if check.returncode != 0:
        problems += check.stdout.splitlines()
    pinned, loose = pins(PINS.read_text())
    problems += [f"{PINS.name}: {line!r} pins no version" for line in loose]
    installed = {_canonical(each.metadata["Name"]): each.version for each in distributions()}
    problems += other_versions(pinned, installed)
    for problem in problems:
        print(f"audit-deps: {problem}", file=sys.stderr)
    if problems:
        return 1
    beside = sorted(installed.keys() - pinned.keys() - _UNPINNED)
    print(f"audit-deps: {len(pinned)} versions are pinned; what is installed is as pinned, and in agreement.")
    if beside:
        print(
            f"audit-deps: {len(beside)} others are installed, not pinned and not looked up: {', '.join(beside[:5])} ..."
        )
    return 0 if chosen.offline else _asked()


if __name__ == "__main__":
    sys.exit(main())
