"""Changes in place of values over a Split, and what is computed anew after caught errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter import WholeArrayError, split
from spliter.pipeline import Rows, options, pipeline, splittable

TABLE = np.random.default_rng(2).normal(size=(76, 3))


def blocks(whole: Any) -> list[Any]:
    return np.split(whole, [5, 5, 45, 46])


@pytest.mark.parametrize(
    "view_of",
    [
        lambda x: x.real,
        lambda x: np.flip(x, axis=1),
        lambda x: np.expand_dims(x, 1),
        lambda x: np.expand_dims(x, 1)[:, 0, :1],
        lambda x: x[:, None].squeeze(axis=1),
        lambda x: np.einsum("ij->ij", x),
        lambda x: np.diff(x, n=0),
    ],
)
def test_changes_of_other_views_of_a_distributed_array_are_refused(view_of: Any) -> None:
    def change_view(x: Any) -> Any:
        view = view_of(x)
        view += 1
        return x * 1

    def change_base(x: Any) -> Any:
        view = view_of(x)
        x[:, 0] = 1
        return view

    def change_rows(x: Any) -> Any:
        view, chosen = view_of(x), x[:, 0] > 0
        view[chosen] += 1
        return view

    def change_neither(x: Any) -> Any:
        shifted = view_of(x) + 1
        x += 1
        shifted += 1
        return shifted.sum(axis=0), x

    for body in (change_view, change_base, change_rows):
        with pytest.raises(WholeArrayError, match="needs all rows"):
            pipeline(body)(split(blocks(TABLE)))
    for found, expected in zip(
        pipeline(change_neither)(split(blocks(TABLE))), change_neither(TABLE.copy()), strict=True
    ):
        whole = np.concatenate(found) if isinstance(found, list) else found
        np.testing.assert_allclose(whole, expected)


def of_sums(x: Any) -> Any:
    total = x.sum(axis=0)
    shifted = x - total
    total[0] = 0
    return shifted


def of_extremes(x: Any) -> Any:
    largest = x.max(axis=0)
    few = largest[:1]
    product = x @ largest
    few *= 2
    shifted = x - largest
    largest.fill(0)
    return product[:, None] + shifted


def of_counts(x: Any) -> Any:
    counts = np.histogram(x, [-1, 0, 1, 9])[0]
    found = []
    for at in range(3):
        found.append(x * counts)
        counts[at] = 0
    return sum(found)


@pytest.mark.parametrize("body", [of_sums, of_extremes, of_counts])
def test_reductions_are_taken_as_they_are_at_the_call(body: Any) -> None:
    with split(blocks(TABLE)) as parts:
        found = np.concatenate(pipeline(body)(parts))
    np.testing.assert_allclose(found, body(TABLE.copy()), atol=1e-12)


@pytest.mark.parametrize(
    ("view_of", "is_changed"),
    [(lambda y: y[:, 0], True), (lambda y: y[:, 1:], True), (lambda y: np.flip(y, axis=1), False)],
)
def test_views_of_results_that_a_pass_has_shown(view_of: Any, is_changed: bool) -> None:
    def body(x: Any) -> Any:
        chosen = x[:, 0] > 0
        x[chosen] = x[chosen] * 10  # the function is tried on a row that a pass has made
        doubled = splittable(lambda a: a * 2, a=Rows(), returns=Rows())(x)
        view = view_of(doubled)
        view += 1
        return doubled

    with split(blocks(TABLE)) as parts:
        if is_changed:
            found = np.concatenate(pipeline(body)(parts))
            np.testing.assert_allclose(found, body(TABLE.copy()))
        else:
            with pytest.raises(WholeArrayError):
                pipeline(body)(parts)


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        ((slice(None), 0), (2, 2)),
        ((slice(None), 0), (3, 1)),
        ((slice(None), slice(1)), (2, 2, 1)),
        ((slice(None), None, 0), (1, 2)),
        (..., (2,)),
    ],
)
def test_values_that_do_not_fit_raise_at_the_call(index: Any, shape: Any) -> None:
    def body(x: Any) -> Any:
        y = x * 1
        with pytest.raises(ValueError, match="could not broadcast input array"):
            y[index] = np.ones(shape)
        return y

    with split(blocks(TABLE)) as parts:
        np.testing.assert_array_equal(np.concatenate(pipeline(body)(parts)), TABLE)


def test_rows_of_a_filter_are_assigned_to() -> None:
    def body(x: Any) -> Any:
        few = x[x > 0]
        few[:] = few + 1
        few **= 2
        return few

    values = TABLE[:, 0].copy()
    with options(batch=7), split(blocks(values)) as parts:
        np.testing.assert_array_equal(np.concatenate(pipeline(body)(parts)), body(values))


def fail(x: Any) -> Any:
    if len(x):
        raise ValueError("refused")
    return x


failing = splittable(fail, x=Rows(), returns=Rows())


def attempt(x: Any) -> None:
    with contextlib.suppress(ValueError):
        float(failing(x - 1).max())


def with_a_number(x: Any) -> Any:
    kept = np.clip(x, 0, 2)
    number = kept.max()
    attempt(x)
    kept *= 0.5
    return kept, number


def twice(x: Any) -> Any:
    one = x + 1
    two = one * 2
    attempt(x)
    one, two = one + 1, two * 2
    attempt(x)
    return one, two


@pytest.mark.parametrize("body", [with_a_number, twice])
def test_values_are_computed_anew_after_errors(body: Callable[[Any], Any]) -> None:
    values = TABLE[:, 0].copy()
    expected = body(values)
    with options(batch=7), split(blocks(values)) as parts:
        for each, whole in zip(pipeline(body)(parts), expected, strict=True):
            found = np.concatenate(each) if isinstance(each, list) else each
            np.testing.assert_array_equal(found, whole)


def test_rows_of_a_filter_that_are_counted_are_added_to() -> None:
    def body(x: Any) -> Any:
        mask = x > 1
        few = x[mask]
        assert len(few)
        few += (x * 2)[mask]
        return few

    values = TABLE[:, 0].copy()
    with options(batch=7), split(blocks(values)) as parts:
        np.testing.assert_array_equal(np.concatenate(pipeline(body)(parts)), body(values))


def test_rows_of_another_filter_are_not_assigned() -> None:
    def body(x: Any) -> Any:
        few = x[x > 0]
        few[:] = x[x < 9]
        return few

    with pytest.raises(WholeArrayError, match="assigned"):
        pipeline(body)(split(blocks(TABLE[:, 0].copy())))


def _bounded(x: Any) -> Any:
    place = x * 1.0
    for _ in range(3):
        place += 0.4
        assert np.clip(place, -1, 1, out=place) is place
    return place


@pytest.mark.parametrize(
    "body",
    [
        _bounded,
        lambda x: (y := x + 1, y.clip(min=0, out=y), y.round(1, out=y))[0],
        lambda x: (y := x * 0, np.round(x, 1, out=y), np.clip(x + 1, None, 1, out=y))[0],
        lambda x: (y := (x * 9).astype(int), np.clip(y, 0, 5, out=y))[0],
        lambda x: (y := x * 1, np.clip(y, 0, 1, y), np.round(y, 1, y), np.around(x, 2, out=y))[0],
    ],
)
def test_clipped_and_rounded_values_are_written_into_arrays(body: Callable[[Any], Any]) -> None:
    found = np.concatenate(pipeline(body)(split(blocks(TABLE))))
    expected = body(TABLE.copy())
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


def test_results_of_another_dtype_are_not_written_over_a_split() -> None:
    with pytest.raises(WholeArrayError, match="needs all rows"):
        pipeline(lambda x: np.clip(x, 0, 1, out=(x * 1).astype(np.float32)))(split(blocks(TABLE)))


class Unit:
    """Does without ufuncs of arrays: its own operators are called."""

    __array_ufunc__ = None

    def __radd__(self, other: Any) -> Any:
        return other * 2

    def __lt__(self, other: Any) -> Any:
        return other > 1


@pytest.mark.parametrize("body", [lambda x: x + Unit(), lambda x: (x > Unit()) * 1.0])
def test_operators_of_objects_that_refuse_ufuncs(body: Callable[[Any], Any]) -> None:
    found = np.concatenate(pipeline(body)(split(blocks(TABLE))))
    np.testing.assert_array_equal(found, body(TABLE))
    np.testing.assert_array_equal(pipeline(body)(TABLE), body(TABLE))


def of_numbers(x: Any) -> Any:
    column = (x[:, 0] > 9).sum() + 1
    y = x[:, : column + 1] * 1
    y[:, column] = 0
    y[..., x.mean(axis=0)[:2].argmax()] -= 1
    order = np.argsort(x.mean(axis=0))
    bins = np.linspace(x.min(), x.max(), 5)
    return (
        *(y, x[:, order], x[:, x.mean(axis=0) > 0], np.roll(x, column, axis=column)),
        *(x.sum(axis=column), x.std(axis=0, ddof=column), np.histogram(x, bins)[0]),
    )


def test_lazy_numbers_are_indexes_axes_and_options() -> None:
    with split(blocks(TABLE)) as parts:
        for found, expected in zip(pipeline(of_numbers)(parts), of_numbers(TABLE), strict=True):
            whole = np.concatenate(found) if isinstance(found, list) else found
            np.testing.assert_allclose(whole, expected)


@pytest.mark.parametrize("chosen", [lambda x: x, lambda x: x[x > 0]])
def test_results_of_functions_of_changed_rows_change(chosen: Any) -> None:
    doubled = splittable(lambda a: np.asarray(a) * 2, a=Rows(), returns=Rows())

    def body(x: Any) -> Any:
        z = x * 1
        z[z > 1] -= 1
        y = doubled(chosen(z))
        y += 1
        y[y > 2] = 0
        return y

    with split(blocks(TABLE[:, 0])) as parts:
        found = np.concatenate(pipeline(body)(parts))
    np.testing.assert_allclose(found, body(TABLE[:, 0].copy()))
