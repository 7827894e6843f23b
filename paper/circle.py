"""The point set for which no small coreset exists."""

from __future__ import annotations

import numpy as np


def lower_bound_circle(n: int) -> np.ndarray:
    r"""``n >= 2`` points of the plane whose Gaussian sensitivities at bandwidth 1 are all at least 1/2.

    The points are spread evenly on a circle of radius

    .. math:: r = \frac{\sqrt{\ln n}}{2 \sin(\pi / n)}.

    Two neighbours are seen from the centre under the angle :math:`2\pi/n`, so they are
    :math:`2 r \sin(\pi/n) = \sqrt{\ln n}` apart, and no two points are closer. At the query :math:`x = p`, which
    lies in the ball of radius r around the centre, each of the other :math:`n - 1` points adds at most
    :math:`e^{-\ln n} = 1/n` to the sum, hence

    .. math:: s(p) \ge \frac{f(p, p)}{\sum_q f(q, p)} \ge \frac{1}{1 + (n - 1)/n} > \frac12 .

    so the total exceeds n/2, and a sampling scheme that draws in proportion to sensitivity is no better than uniform.
    The ball, of a radius of about :math:`n \sqrt{\ln n} / (2\pi)`, is what makes it possible: for points and queries
    within fixed balls the total is bounded whatever n.

    The source prints the radius :math:`\sqrt{\ln n / (2 \cos(\pi/n))}` and takes the spacing from the law of cosines.
    That law gives :math:`|p - q|^2 = 2 r^2 (1 - \cos(2\pi/n)) = 4 r^2 \sin^2(\pi/n)`, which is :math:`\ln n` for the
    radius above and :math:`2 \ln n \sin^2(\pi/n) / \cos(\pi/n) \to 0` for the printed one (undefined at n = 2): its
    points crowd together; from n = 5 on they are too close, and from n = 7 on the share of p at x = p is below 1/2.

    Parameters
    ----------
    n : int
        Number of points, at least 2. ``n = 2`` gives two points :math:`\sqrt{\ln 2}` apart.

    Returns
    -------
    ndarray of shape (n, 2)
        Counter-clockwise from ``(r, 0)``; the centre is the origin.

    Source: the theorem on the lower bound of the coreset size for the Gaussian loss, with its radius corrected.
    """
    radius = np.sqrt(np.log(n)) / (2.0 * np.sin(np.pi / n))
    angles = np.arange(n) * (2.0 * np.pi / n)
    return radius * np.column_stack((np.cos(angles), np.sin(angles)))
