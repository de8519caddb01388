"""Small scikit-learn models of tables, fitted on frames and on arrays, and data for them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FEATURES = ("height", "weight", "age")


def make_frame(count: int = 60, *, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Cats are light and dogs are heavy; the ages say nothing."""
    draw = np.random.default_rng(seed)
    kind = np.arange(count) % 2
    table = np.column_stack(
        [20 + 40 * kind + draw.normal(size=count), 4 + 20 * kind + draw.normal(size=count), draw.uniform(1, 10, count)]
    )
    return pd.DataFrame(table.astype(np.float32), columns=list(FEATURES)), np.array(["cat", "dog"])[kind]


@cache
def fit_pipeline():
    """A pipeline that selects its columns by name: it takes frames only."""
    frame, labels = make_frame()
    columns = ColumnTransformer([("size", StandardScaler(), ["weight", "height"])], remainder="passthrough")
    return make_pipeline(columns, LogisticRegression()).fit(frame, labels)


@cache
def fit_logistic(classes=("cat", "dog"), *, with_names: bool = True):
    """A classifier of the two kinds, under these names."""
    frame, labels = make_frame()
    named = np.where(labels == "cat", *(np.array([one]) for one in classes))
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(frame if with_names else frame.to_numpy(), named)


def write_csv(path: Path, *, columns=FEATURES, label: str = "label", classes=("cat", "dog"), count: int = 2) -> Path:
    """A table of cats and dogs."""
    frame, labels = make_frame(count, seed=1)
    frame = frame[list(columns)].assign(**{label: np.where(labels == "cat", *(np.array([one]) for one in classes))})
    frame.to_csv(path, index=False)
    return path


pipeline = fit_pipeline


def numbered():
    """Classes that are not 0 and 1."""
    return fit_logistic((3, 7))


def two_logits(batch: np.ndarray) -> np.ndarray:
    return np.column_stack([40 - batch[:, 0], batch[:, 0] - 40])


def three_logits(batch: np.ndarray) -> np.ndarray:
    return np.column_stack([40 - batch[:, 0], batch[:, 0] - 40, np.full(len(batch), -1e9)])
