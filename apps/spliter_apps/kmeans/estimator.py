"""The ``KMeans`` estimator: k-means on distributed points, with scikit-learn's interface.

A fit checks the blocks (:mod:`~spliter_apps.kmeans.points`), chooses first centres
(:mod:`~spliter_apps.kmeans.seeding`) and moves them (:mod:`~spliter_apps.kmeans.lloyd`), with one
task per partition in each pass. Only sums as large as the centres cross the network.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted

from spliter import InvalidArgumentError, gather
from spliter.backend import check_count
from spliter_apps._blocks import FLOATS, keep_schema
from spliter_apps._data import Data, Materialize, check_members, is_blocked, open_data
from spliter_apps._differences import check_same_columns, column_names
from spliter_apps._requirements import Requirements, check_number, validated
from spliter_apps.kmeans.kernel import FloatArray, one_blas_thread
from spliter_apps.kmeans.lloyd import LloydRun, distances, inertia, lloyd, nearest
from spliter_apps.kmeans.points import Points, check_point_weights
from spliter_apps.kmeans.seeding import check_centers, first_centers

Init = Literal["auto", "k-means++", "k-means||", "random"] | Callable[..., Any] | Any

SAME = 100
"""Multiple of the rounding error within which two starts have equal inertia. Equal clusters
differ by up to 0.25 on digits, iris and breast cancer (25 starts each)."""


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Cluster points in blocks around means.

    Started from the same centres, Lloyd's algorithm converges to the clusters of
    ``sklearn.cluster.KMeans`` in the same number of iterations, except for ties. The same
    `random_state` gives the same first centres. Results do not depend on the blocks or locations.

    Parameters
    ----------
    n_clusters : int, default 8
        Number of clusters.
    init : {"auto", "k-means++", "k-means||", "random"}, array or callable, default "auto"
        How to choose the first centres.

        - ``"auto"``: ``"k-means++"`` for up to 16 clusters, ``"k-means||"`` for more.
        - ``"k-means++"``: points far from each other, one after the other, each the best of a few
          candidates; two passes over the data per cluster. The same points as scikit-learn chooses
          with the same `random_state`.
        - ``"k-means||"``: for many clusters. Twelve passes draw candidates, and the client
          clusters these (Bahmani et al. 2012).
        - ``"random"``: points at random, by weight.
        - an array of shape (n_clusters, n_features): these centres.
        - a callable: gets `X` as it was passed to :meth:`fit`, `n_clusters` and
          ``random_state=``, and returns such an array.
    n_init : "auto" or int, default "auto"
        Number of starts, of which the best is kept. ``"auto"`` is 10 for ``"random"`` or a
        callable, else 1.
    max_iter : int, default 300
        Maximum number of iterations of one start.
    tol : float, default 1e-4
        Iteration ends when the squared shifts of the centres add up to at most this, times
        the mean variance of the features.
    verbose : int, default 0
        Print the inertia of every iteration. Doubles the passes over the data.
    random_state : int, RandomState or None, default None
        Source of random numbers; an int makes fits repeatable.
    copy_x : bool, default True
        Ignored; points are never modified.
    algorithm : {"lloyd"}, default "lloyd"
        For compatibility with scikit-learn.
    materialize : bool or "auto", default "auto"
        Whether to concatenate the blocks of each partition, as for :func:`spliter.split`.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The centres; float32 if the points are, else float64.
    labels_ : ndarray of int32, shape (n,), or collection
        Cluster of each point. For blocked points, a collection of the same engine with the same
        blocks along axis 0, kept at the locations of the points and not pickled.
    inertia_ : float
        Sum of the squared distances of the points to their centre, times their weight.
    n_iter_ : int
        Number of iterations.
    n_features_in_ : int
        Number of columns of the points.
    feature_names_in_ : ndarray of object, shape (n_features_in_,)
        Names of the columns; only for DataFrames whose column names are all strings.

    Notes
    -----
    Points are arrays, DataFrames or CSR matrices in memory, a collection of blocks of these that
    :func:`spliter.split` accepts, or a :class:`spliter.Split` of points, or of points and weights.
    Lazy collections are computed and kept in the engine's memory during the call. In a pipeline,
    scale with dask-ml: scikit-learn's scalers gather the points at the client. The cost hardly
    depends on the number of rows per block; a task needs a few MB of scratch memory.

    An empty cluster gets the point that is farthest from its centre, as in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter_apps import KMeans
    >>> blocks = [np.array([[1.0, 2], [1, 4], [1, 0]]), np.array([[10.0, 2], [10, 4], [10, 0]])]
    >>> kmeans = KMeans(n_clusters=2, random_state=0).fit(blocks)
    >>> kmeans.cluster_centers_
    array([[10.,  2.],
           [ 1.,  2.]])
    >>> kmeans.labels_
    [array([1, 1, 1], dtype=int32), array([0, 0, 0], dtype=int32)]
    >>> kmeans.predict([[0, 0], [12, 3]])
    array([1, 0], dtype=int32)
    >>> kmeans.inertia_, kmeans.n_iter_
    (16.0, 2)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Init = "auto",
        n_init: int | Literal["auto"] = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
        copy_x: bool = True,
        algorithm: Literal["lloyd"] = "lloyd",
        materialize: Materialize = "auto",
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.copy_x = copy_x
        self.algorithm = algorithm
        self.materialize = materialize

    def fit(self, X: Any, y: object = None, sample_weight: Any = None) -> Self:
        """Find clusters.

        Parameters
        ----------
        X : array-like, sparse matrix or collection of shape (n, n_features)
            The points. See the notes of the class.
        y : ignored
            Present for compatibility with scikit-learn.
        sample_weight : array-like or collection of shape (n,), optional
            Non-negative weight of each point; in memory, or blocked like `X`.

        Returns
        -------
        KMeans
            The fitted estimator.

        Raises
        ------
        InvalidArgumentError
            If the points are not finite numbers in two dimensions or fewer than the clusters, the
            columns of two blocks differ, weights do not match the points, elements are masked, or a
            parameter is invalid. A ``ValueError``; for input in memory scikit-learn's own.
        AlignmentError, UnsupportedCollectionError, LazyCollectionError, BlockLostError
            As for :func:`spliter.split`.

        Warns
        -----
        ConvergenceWarning
            If there are fewer distinct points than `n_clusters`, and so fewer clusters.
        """
        self._check_parameters()
        with one_blas_thread(), self._open(X, sample_weight, reset=True) as data:
            points = Points.inspect(data.parts, with_moments=self.tol > 0)
            if not data.in_memory:
                keep_schema(self, points.schema)
            self._check_points(points)
            run = self._best(points, X, check_random_state(self.random_state))
            self._keep(run, points, data)
        return self

    def _open(self, X: Any, sample_weight: Any, *, reset: bool) -> Data:
        """Split points and weights; validate in-memory ones first."""
        if not is_blocked(X):
            X = self._validate(X, reset=reset)
            if sample_weight is not None:
                if isinstance(sample_weight, Real):
                    sample_weight = np.full(X.shape[0], float(sample_weight))
                sample_weight = check_point_weights(sample_weight, X.shape[0], "sample_weight")
        data = open_data(X, sample_weight, materialize=self.materialize, names=["sample_weight"])
        if data.parts.ncollections > 2:
            check_members(data, 2, "split(X), or split(X, sample_weight)")
        return data

    def _validate(self, X: Any, *, reset: bool) -> Any:
        accepted: dict[str, Any] = {"accept_sparse": "csr", "accept_large_sparse": False}
        return validated(self, X, reset=reset, dtype=FLOATS, order="C", **accepted)

    def _check_parameters(self) -> None:
        check_count("n_clusters", self.n_clusters)
        check_count("max_iter", self.max_iter)
        check_number("tol", self.tol)
        if not (isinstance(self.n_init, str) and self.n_init == "auto"):
            check_count("n_init", self.n_init, instead='"auto" or ')
        if self.algorithm != "lloyd":
            raise InvalidArgumentError(
                f'algorithm must be "lloyd", got {self.algorithm!r}; from the same first centres '
                '"elkan" leads to the same clusters'
            )
        ways = ("auto", "k-means++", "k-means||", "random")
        if isinstance(self.init, str) and self.init not in ways:
            raise InvalidArgumentError(
                f"init must be one of {ways}, an array of centres or a callable, got {self.init!r}"
            )

    def _check_points(self, points: Points) -> None:
        n_items = points.schema.n_items
        if not n_items or n_items < self.n_clusters:
            raise InvalidArgumentError(
                f"n_samples={n_items} should be >= n_clusters={self.n_clusters}."
            )
        if not points.masses.any():
            raise InvalidArgumentError("Sample weights must contain at least one non-zero number.")

    def _best(self, points: Points, X: Any, random_state: np.random.RandomState) -> LloydRun:
        """Run Lloyd's algorithm from each start; return the run with the least inertia."""
        same = max(SAME * float(np.finfo(points.schema.dtype).eps), 1e-10)
        best: LloydRun | None = None
        for _ in range(self._n_starts()):
            start = self._first_centers(points, X, random_state)
            if self.verbose:
                print("Initialization complete")  # noqa: T201 - what `verbose` asks for
            run = lloyd(
                points,
                start,
                max_iter=int(self.max_iter),
                tol=float(self.tol) * points.mean_variance,
                report=print if self.verbose else None,
            )
            if best is None or run.inertia < best.inertia * (1 - same):
                best = run
        assert best is not None
        return best

    def _n_starts(self) -> int:
        given = not (isinstance(self.init, str) or callable(self.init))
        if self.n_init == "auto":
            return 10 if callable(self.init) or (not given and self.init == "random") else 1
        if given and self.n_init != 1:
            warnings.warn(
                "Explicit initial center position passed: performing only one init in "
                f"{type(self).__name__} instead of n_init={self.n_init}.",
                RuntimeWarning,
                stacklevel=4,
            )
            return 1
        return int(self.n_init)

    def _first_centers(
        self, points: Points, X: Any, random_state: np.random.RandomState
    ) -> FloatArray:
        if isinstance(self.init, str):
            return first_centers(points, self.init, int(self.n_clusters), random_state)
        given = self.init
        if callable(given):
            given = given(X, self.n_clusters, random_state=random_state)
        names = column_names(given)
        if None not in (names, self._columns):
            check_same_columns(self._columns, names, "the points and `init`")
        return check_centers(given, points.schema, self.n_clusters)

    def _keep(self, run: LloydRun, points: Points, data: Data) -> None:
        if run.n_used < self.n_clusters:
            warnings.warn(
                f"Number of distinct clusters ({run.n_used}) found smaller than n_clusters "
                f"({self.n_clusters}). Possibly due to duplicate points in X.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.cluster_centers_ = run.centers.astype(points.schema.dtype)
        self._n_features_out = len(run.centers)
        self.labels_ = data.gathered(points.parts.assemble(run.labels, dtype=np.int32, output=0))
        self.inertia_ = run.inertia
        self.n_iter_ = run.n_iter

    def predict(self, X: Any) -> Any:
        """Return the number of the nearest centre of each point.

        Parameters
        ----------
        X : array-like, sparse matrix or collection of shape (n, n_features)
            Points.

        Returns
        -------
        ndarray of int32, shape (n,), or collection
            A collection with the same blocks if `X` is one.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidArgumentError
            If the columns of `X` differ from those of the fit, or values are not finite.
        """
        return self._for_each_block(X, nearest, np.int32, ())

    def transform(self, X: Any) -> Any:
        """Return the distance of each point to each centre.

        Parameters
        ----------
        X : array-like, sparse matrix or collection of shape (n, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n, n_clusters), or collection
            A collection with the same blocks if `X` is one. float32 if the centres are.

        Raises
        ------
        NotFittedError, InvalidArgumentError
            As for :meth:`predict`; also for a collection if ``set_output`` asks for a DataFrame.
        """
        check_is_fitted(self)
        _check_output_container(self, X)
        dtype = self.cluster_centers_.dtype
        return self._for_each_block(X, distances, dtype, (len(self.cluster_centers_),))

    def _for_each_block(
        self, X: Any, fn: Callable[..., Any], dtype: npt.DTypeLike, trailing: tuple[int, ...]
    ) -> Any:
        check_is_fitted(self)
        with self._open(X, None, reset=False) as data:
            requirements = self._requirements(data)
            made = data.parts.map_blocks(
                fn, requirements, self.cluster_centers_, dtype=dtype, trailing_shape=trailing
            )
            return data.gathered(made)

    def score(self, X: Any, y: object = None, sample_weight: Any = None) -> float:
        """Return the negative inertia of points with the fitted centres.

        Parameters
        ----------
        X : array-like, sparse matrix or collection of shape (n, n_features)
            Points.
        y : ignored
            Present for compatibility with scikit-learn.
        sample_weight : array-like or collection of shape (n,), optional
            Weight of each point; in memory, or blocked like `X`.

        Returns
        -------
        float
            Greater is better.

        Raises
        ------
        NotFittedError, InvalidArgumentError
            As for :meth:`predict`.
        """
        check_is_fitted(self)
        with self._open(X, sample_weight, reset=False) as data:
            parts = data.parts
            args = (self._requirements(data), self.cluster_centers_, parts.ncollections == 2)
            return -float(sum(gather(parts.map(inertia, *args))))

    def _requirements(self, data: Data) -> Any:
        """Return what tasks need to check blocks; points in memory have been checked."""
        expected = Requirements.by(self, self.cluster_centers_.dtype, accept_sparse=True)
        return expected if data.in_memory else expected.of_blocks(data.parts)

    def fit_predict(self, X: Any, y: object = None, sample_weight: Any = None) -> Any:
        """Find clusters and return ``labels_``.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`.

        Returns
        -------
        ndarray of int32, shape (n,), or collection
            Cluster of each point.
        """
        return self.fit(X, sample_weight=sample_weight).labels_

    def fit_transform(self, X: Any, y: object = None, sample_weight: Any = None) -> Any:
        """Find clusters and return the distance of each point to each centre.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`.

        Returns
        -------
        ndarray of shape (n, n_clusters), or collection
            As for :meth:`transform`.
        """
        _check_output_container(self, X)
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def __getstate__(self) -> dict[str, Any]:
        # A copy: the parent may return the estimator's own __dict__.
        state: dict[str, Any] = dict(super().__getstate__())
        # An engine's collection refers to its workers, which the receiver may not reach.
        if not isinstance(state.get("labels_"), np.ndarray | list):
            state.pop("labels_", None)
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _check_output_container(estimator: Any, X: Any) -> None:
    """Reject blocked points if ``set_output`` requests one DataFrame in memory."""
    container = _get_output_config("transform", estimator)["dense"]
    if container != "default" and is_blocked(X):
        raise InvalidArgumentError(
            f"transform_output={container!r} makes one DataFrame in this process, but the points "
            "are in blocks; call set_output(transform='default'). To convert the resulting Dask "
            "array: dask.dataframe.from_dask_array(result, "
            "columns=list(estimator.get_feature_names_out()))"
        )
