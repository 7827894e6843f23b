"""The part of a page about the data: histogram of the sensitivities, images at both ends, what is proved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..bench.layout import percent
from .images import data_uri
from .inputs import Inputs, Proof, Thumbnail
from .svg import Frame, Markup, Scale, join, svg, tag, text
from .tables import prose, scrolling

_N_BINS = 48
_SIZE = (940.0, 250.0)
_NARROW_SIZE = (344.0, 210.0)


def inputs_section(inputs: Inputs) -> Markup:
    """Everything that is said of the data."""
    spread = np.quantile(inputs.sensitivities, [0.0, 0.01, 0.99, 1.0])
    shape = " by ".join(map(str, inputs.shape))
    said = (
        f"{inputs.n_samples:,} training samples of {shape}; RBF sensitivities with queries in a ball of "
        f"radius {inputs.radius:g}. {inputs.advice} The most sensitive sample has "
        f"{spread[3]:.2f} times the mean, the least {spread[0]:.2f} times; 98 % lie between {spread[1]:.2f} and "
        f"{spread[2]:.2f}."
    )
    parts = [
        tag("h3", "Sensitivities of the data"),
        tag("p", prose(said)),
        tag(
            "figure",
            *(
                histogram(inputs, *size, class_=css)
                for size, css in ((_SIZE, "wide"), (_NARROW_SIZE, "narrow"))
            ),
            tag(
                "figcaption",
                "Training samples by their sensitivity, in proportion to which they are drawn; were all on the dashed "
                "line, that would be uniform sampling.",
            ),
        ),
    ]
    if any(one.image is not None for one in inputs.most):
        parts.append(
            tag(
                "div",
                _gallery("Most sensitive", inputs.most),
                _gallery("Least sensitive", inputs.least),
                class_="galleries",
            )
        )
    parts += [tag("h3", "The certificate: what is proved"), _proofs(inputs)]
    return join(parts)


def histogram(inputs: Inputs, width: float, height: float, class_: str) -> Markup:
    """Counts of samples, and the mean."""
    frame = Frame(width, height, left=52.0, top=28.0)
    values = inputs.sensitivities
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-6 * high:
        low, high = 0.5 * low, 1.5 * high  # all alike: one bar
    n_bins = _N_BINS if width > 500 else _N_BINS // 2
    counts, edges = np.histogram(values, bins=n_bins, range=(low, high))
    x = Scale(low, high, *frame.x)
    y = Scale(0.0, 1.08 * float(counts.max()), *frame.y)
    bars = []
    for count, left, right in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if count:
            title = f"{count:,} samples between {left:.2f} and {right:.2f} times the mean"
            # a sample alone is still seen
            tall = max(y(0.0) - y(float(count)), 1.0)
            bars.append(
                tag(
                    "rect",
                    tag("title", title),
                    x=x(left) + 0.5,
                    y=y(0.0) - tall,
                    width=max(x(right) - x(left) - 1.0, 1.0),
                    height=tall,
                    class_="bar rbf",
                )
            )
    axes = frame.axes(x, y, "sensitivity over its mean", "samples", y_text=lambda count: f"{count:,.0f}")
    mean = tag("line", x1=x(1.0), x2=x(1.0), y1=frame.y[0], y2=frame.y[1] - 6, class_="reference")
    name = text(x(1.0) + 5, frame.y[1] - 2, "mean", "name full")
    described = (
        f"Histogram of {inputs.n_samples:,} sensitivities, from {low:.2f} to {high:.2f} times the mean."
    )
    return svg(width, height, described, axes, *bars, mean, name, class_=f"plot {class_}")


def _gallery(title: str, thumbnails: Sequence[Thumbnail]) -> Markup:
    images = []
    for one in thumbnails:
        if one.image is None:
            continue
        said = f"class {one.label}, row {one.row:,}, {one.share:.2f} times the mean"
        height, width = one.image.shape[1:]
        images.append(tag("img", src=data_uri(one.image), alt=said, title=said, width=width, height=height))
    return tag("div", tag("h4", title), tag("div", *images, class_="thumbnails"), class_="gallery")


def _proofs(inputs: Inputs) -> Markup:
    if not inputs.proofs:
        return tag("p", "No budget below all data: nothing to prove.")
    first = inputs.proofs[0]
    strength = (
        "All pairs of rows were summed: there is no probability in it."
        if first.is_exact
        else f"Sums were taken over two samples of {first.n_sampled:,} rows, so each bound holds with probability "
        f"{first.confidence:g}, and part of it is the price of sampling."
    )
    said = (
        "For a coreset drawn as the method RBF draws it, with weights that sum to the number of rows, the certificate "
        "bounds the relative error of every Gaussian sum over the data, for "
        f"all queries within radius {inputs.radius:g}. {strength} One draw of each kind. "
        "It says nothing of a network's accuracy, loss or gradients."
    )
    head = tag(
        "tr",
        *(tag("th", name, scope="col") for name in ("budget", "samples", "RBF coreset", "uniform sample")),
    )
    rows = [_proof(one) for one in inputs.proofs]
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="results proofs")
    note = "Guaranteed relative error, at most; an error of 100 % or more says nothing."
    return join([tag("p", prose(said)), scrolling("certificates", table), tag("p", note, class_="note")])


def _proof(one: Proof) -> Markup:
    errors = (f"{100 * eps:.1f} %" if np.isfinite(eps) else "no bound" for eps in (one.eps, one.uniform_eps))
    name = tag("th", percent(one.budget), scope="row")
    return tag("tr", name, tag("td", f"{one.size:,}"), *(tag("td", error) for error in errors))
