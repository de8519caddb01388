"""Step functions on a line: with any number of levels and classes no certified radius contains a point where G differs.

Exact probabilities stand in place of sampled bounds, so that one counter-example refutes the theorem or its code.
"""

from __future__ import annotations

import numpy as np
import pytest

from selected_lines import LineWorlds
from smoothcert.certificates import gaussian_radius, gaussian_two_class_radius
from smoothcert.certificates.selected_sigma import exclusion_radii, published_radius, selected_radius
from smoothcert.records import FloatArray

COUNT = 3000
SHARES = np.linspace(-1.0, 1.0, 61) * (1 - 1e-6)
DECIDED = 1e-7
"""A lead below this is that of another answer only by rounding."""


def _certify(worlds: LineWorlds) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For each world the class, and the radii of both forms, as a user would get them: the best class of all levels."""
    origin = np.zeros((COUNT, 1))
    taken, classes = worlds.taken(origin)[:, 0], worlds.classes(origin)[:, 0]
    own = classes.argmax(axis=2)
    top = np.take_along_axis(classes, own[..., None], axis=2)[..., 0]
    runner_up = np.sort(classes, axis=2)[..., -2]
    reach = gaussian_two_class_radius(_inside(top), _inside(runner_up), sigma=worlds.sigmas)
    found = np.zeros((COUNT, 3))
    for row in range(COUNT):
        leading = int(taken[row].argmax())
        uppers = _inside(taken[row].copy())
        p = float(uppers[leading])
        uppers[leading] = np.nan
        excluded = exclusion_radii(p, uppers.tolist(), sigma=float(worlds.selector_sigmas[row])).tolist()
        best = {
            int(label): selected_radius(excluded, np.where(own[row] == label, reach[row], 0.0).tolist())
            for label in own[row]
        }
        label = max(best, key=lambda one: best[one])
        two_class = float(gaussian_radius(p, sigma=float(worlds.selector_sigmas[row])))
        found[row] = label, best[label], published_radius(two_class, float(reach[row, leading]))
    return found[:, 0].astype(np.int64), found[:, 1], found[:, 2]


def _inside(chances: FloatArray) -> FloatArray:
    return np.clip(chances, 1e-12, 1 - 1e-12)


def _differs(worlds: LineWorlds, labels: FloatArray, radii: FloatArray) -> FloatArray:
    """Whether G answers another class somewhere on the line within these radii."""
    answers, leads = worlds.answer(radii[:, None] * SHARES)
    return ((answers != labels[:, None]) & (leads > DECIDED)).any(axis=1) & (radii > 0)


@pytest.mark.slow
@pytest.mark.parametrize(("levels", "classes"), [(2, 2), (3, 2), (3, 4), (5, 3)])
def test_nothing_differs_inside(levels: int, classes: int) -> None:
    worlds = LineWorlds.draw(COUNT, levels=levels, classes=classes, seed=2)
    labels, selected, published = _certify(worlds)
    assert not _differs(worlds, labels, selected).any()
    origin = np.zeros((COUNT, 1))
    assert not _differs(worlds, worlds.answer(origin)[0][:, 0], published).any()
    # Most worlds are certified, the sharper form gains, and twice the radius is wrong often: the search can find.
    assert (selected > 0).mean() > 0.5
    assert (selected > 1.05 * published).mean() > 0.1
    assert _differs(worlds, labels, 2 * selected).mean() > 0.2


@pytest.mark.slow
def test_wrong_combinations_are_found_out() -> None:
    """Controls: the leading level alone, the largest radius, exclusions of the second level for all."""
    worlds = LineWorlds.draw(COUNT, levels=3, classes=2, seed=2)
    origin = np.zeros((COUNT, 1))
    taken, classes = worlds.taken(origin)[:, 0], worlds.classes(origin)[:, 0]
    own, leading = classes.argmax(axis=2), taken.argmax(axis=1)
    reach = gaussian_radius(_inside(classes.max(axis=2)), sigma=worlds.sigmas)
    labels = own[np.arange(COUNT), leading]
    of_leading = reach[np.arange(COUNT), leading]
    assert _differs(worlds, labels, of_leading).mean() > 0.2
    assert _differs(worlds, labels, reach.max(axis=1)).mean() > 0.2
    ordered = np.sort(_inside(taken), axis=1)
    far = gaussian_two_class_radius(ordered[:, -1], ordered[:, 0], sigma=worlds.selector_sigmas)
    assert _differs(worlds, labels, np.minimum(of_leading, far)).mean() > 0.05
