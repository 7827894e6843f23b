"""The report as a browser shows it: no errors, nothing wider than a phone, figures and contrasts that can be seen."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coresift.data.splits import ArrayDataset, DatasetSplits
from paper.bench.protocol import load_protocol
from paper.bench.store import Store
from paper.report import read_results, write_report
from paper.report.inputs import look_at
from tests.paper.bench.records import record, small_protocol

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: chromium, chromium-browser or google-chrome"),
]
PHONE, DESK = 360, 1100

# Sends sizes and colours to the page around it, which has no other way to learn them.
MEASURE = """<script>
addEventListener("load", () => {
  const colour = node => { const s = getComputedStyle(node); return node.closest("svg") ? s.fill : s.color; };
  const box = node => { const r = node.getBoundingClientRect(); return [r.width, r.height, r.left, r.right]; };
  const shown = node => getComputedStyle(node).display !== "none" && box(node)[0] > 0;
  const plots = [...document.querySelectorAll("svg.plot")];
  const texts = [...document.querySelectorAll("p, td, th, li, dt, dd, h2, svg.plot text")].filter(shown);
  const used = ["full", "adaptive", "coreset", "seen", "auto", "fixed", "rbf", "random", "glister",
                "craig", "gradmatch", "other"];
  parent.postMessage({
    width: innerWidth,
    scrollWidth: document.documentElement.scrollWidth,
    background: getComputedStyle(document.body).backgroundColor,
    plots: plots.filter(shown).map(box),
    hidden: plots.filter(node => !shown(node)).length,
    letters: plots.filter(shown).map(plot => Math.min(...[...plot.querySelectorAll("text")].map(t => box(t)[1]))),
    marks: plots.filter(shown).map(plot => plot.querySelectorAll("g.mark, g.line, g.bar").length),
    images: [...document.querySelectorAll("img")].map(i => [i.naturalWidth, box(i)[0]]),
    scrolls: [...document.querySelectorAll(".scroll")].filter(shown).map(box),
    colours: texts.map(node => [colour(node), node.closest(".missing, .problems") ? 1 : 0]),
    fills: used.map(name => [name, document.querySelector("g.mark." + name + ":not(.hollow) use")])
      .filter(pair => pair[1]).map(([name, node]) => [name, getComputedStyle(node).fill]),
  }, "*");
});
</script>"""
AROUND = """<!DOCTYPE html><meta charset="utf-8"><body><pre id="measured"></pre><script>
const found = [];
addEventListener("message", event => {{
  found.push(event.data);
  if (found.length === {n}) document.getElementById("measured").textContent = JSON.stringify(found);
}});
</script>{frames}"""


def browse(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *(f"--user-data-dir={page.parent / 'profile'}", "--no-first-run", "--disable-extensions"),
        *("--virtual-time-budget=10000", *options, page.as_uri()),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)


def complaints(page: Path) -> list[str]:
    """What the console of the browser says."""
    result = browse(page, "--enable-logging=stderr", "--dump-dom")
    assert "</html>" in result.stdout
    return [line for line in result.stderr.splitlines() if ":CONSOLE" in line]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All methods of the paper's table with curves, images, and a damaged record."""
    folder = tmp_path_factory.mktemp("report")
    adaptive = ("adaptive-coreset", "adaptive-coreset-seen", "adaptive-coreset-auto", "fixed-coreset")
    named = [str(method) for method in load_protocol("mnist").methods]
    protocol = load_protocol("mnist").narrowed([*named, *adaptive], seeds=2)
    store = Store(folder / "results", "mnist")
    for cell in protocol.runs():
        row = record(protocol, cell)
        share = row["test"]["accuracy"]
        store.append(row | {"curve": [[20 * k, share * (1 - 0.5**k)] for k in range(1, 11)]})
    other = record(small_protocol(), small_protocol().runs()[0])
    with store.file.open("ab") as file:
        file.write(f"{'x' * 300} {other['id']}\n".encode())
    x = np.random.default_rng(0).integers(0, 256, (100, 1, 28, 28), dtype=np.uint8)
    data = ArrayDataset(x, np.zeros(100, np.int64))
    splits = DatasetSplits("mnist", data, data, 1, "classification", (1, 28, 28))
    inputs = look_at("mnist", [0.1], folder, load=lambda *_: splits)
    write_report(read_results(folder / "results"), folder / "page.html", looking=lambda part: inputs)
    yield folder / "page.html"
    shutil.rmtree(folder / "profile", ignore_errors=True)


def measured(page: Path, *options: str) -> dict[int, dict[str, Any]]:
    """Sizes and colours by width of the window, of a copy that may run our script."""
    text = page.read_text(encoding="utf-8")
    copy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace("</body>", f"{MEASURE}</body>")
    assert copy.count("<script>") == 1
    (page.parent / "copy.html").write_text(copy, encoding="utf-8")
    frames = "".join(
        f'<iframe src="copy.html" width="{w}" height="900" frameborder="0"></iframe>' for w in (PHONE, DESK)
    )
    around = page.parent / "around.html"
    around.write_text(AROUND.format(n=2, frames=frames), encoding="utf-8")
    dom = browse(around, "--window-size=1600,1000", "--dump-dom", *options).stdout
    (found,) = re.findall(r'<pre id="measured">(.*?)</pre>', dom, re.DOTALL)
    return {one["width"]: one for one in json.loads(unescape(found))}


@pytest.fixture(scope="module")
def light(page: Path) -> dict[int, dict[str, Any]]:
    return measured(page)


@pytest.fixture(scope="module")
def dark(page: Path) -> dict[int, dict[str, Any]]:
    return measured(page, "--blink-settings=preferredColorScheme=0")


def test_the_console_is_silent_and_would_not_be(page: Path) -> None:
    assert complaints(page) == []
    evil = page.with_name("evil.html")
    evil.write_text(page.read_text().replace("</body>", "<script>console.error('run')</script></body>"))
    (refused,) = complaints(evil)
    assert "Content Security Policy" in refused
    assert "run" not in refused.partition("CONSOLE")[2].partition("source:")[0].replace("'run", "")


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_nothing_is_wider_than_the_window(width: int, light: dict[int, dict[str, Any]]) -> None:
    seen = light[width]
    assert seen["scrollWidth"] <= width
    for _, _, left, right in (*seen["plots"], *seen["scrolls"]):
        assert left >= 0
        assert right <= width


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_figures_are_seen_and_can_be_read(width: int, light: dict[int, dict[str, Any]]) -> None:
    seen = light[width]
    assert len(seen["plots"]) == 1 + 4 + 4 + 1  # overview, times, curves, histogram
    assert seen["hidden"] == 2  # the overview and the histogram of the other width
    for w, h, _, _ in seen["plots"]:
        assert w >= 300
        assert h >= 150
    assert min(seen["letters"]) >= 9.0  # pixels
    assert min(seen["marks"]) > 10
    assert all(natural == 28 and shown >= 24 for natural, shown in seen["images"])
    assert len(seen["images"]) == 36


def _luminance(colour: str) -> float:
    levels = [int(level) / 255 for level in re.findall(r"\d+", colour)[:3]]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in levels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """As defined by the Web Content Accessibility Guidelines."""
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrasts_suffice_in_light_and_in_dark(
    light: dict[int, dict[str, Any]], dark: dict[int, dict[str, Any]]
) -> None:
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21.0)
    paper, night = light[DESK]["background"], dark[DESK]["background"]
    assert _luminance(paper) > 0.9
    assert _luminance(night) < 0.05
    for seen in (light[DESK], dark[DESK]):
        weak = {c for c, on_note in seen["colours"] if not on_note and contrast(c, seen["background"]) < 4.5}
        assert weak == set()
        assert {name for name, fill in seen["fills"] if contrast(fill, seen["background"]) < 3.0} == set()
    assert (
        dict(light[DESK]["fills"]).keys() == dict(dark[DESK]["fills"]).keys() >= {"rbf", "adaptive", "coreset", "seen"}
    )
