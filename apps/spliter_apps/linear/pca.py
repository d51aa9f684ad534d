"""The ``PCA`` estimator: principal components of distributed points, from their covariance."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import sklearn.decomposition
from sklearn.decomposition._pca import _infer_dimension
from sklearn.utils.extmath import svd_flip
from sklearn.utils.validation import check_is_fitted

from spliter import InvalidArgumentError
from spliter_apps._blocks import FLOATS, keep_schema
from spliter_apps._data import check_members, is_blocked, open_data
from spliter_apps._requirements import Requirements, validated
from spliter_apps.kmeans.kernel import one_blas_thread
from spliter_apps.linear.moments import Summary, summarise


class PCA(sklearn.decomposition.PCA):  # type: ignore[misc]
    """Principal components of points in blocks: ``sklearn.decomposition.PCA`` with one pass.

    Parameters, attributes and results are those of scikit-learn with
    ``svd_solver="covariance_eigh"``, the only solver besides ``"auto"``, which means the same here.
    Parameters of other solvers are ignored.

    Notes
    -----
    Points are arrays, DataFrames or CSR matrices in memory, a collection of blocks of these that
    :func:`spliter.split` accepts, or a :class:`spliter.Split` of one. :meth:`fit` and
    :meth:`transform` take them; the other methods take points in memory only.

    A component whose variance is less than about 1e-16 of the largest is rounding error: its
    singular value is exact to 1e-8 of the largest one. Choose another solver of scikit-learn, on
    one machine, where such components matter.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter_apps import PCA
    >>> blocks = [np.array([[-1.0, -1], [-2, -1], [-3, -2]]), np.array([[1.0, 1], [2, 1], [3, 2]])]
    >>> pca = PCA(n_components=1).fit(blocks)
    >>> pca.explained_variance_ratio_.round(4)
    array([0.9924])
    >>> [block.shape for block in pca.transform(blocks)]
    [(3, 1), (3, 1)]
    """

    def fit(self, X: Any, y: object = None) -> Self:
        """Find the components.

        Parameters
        ----------
        X : array-like, sparse matrix or collection of shape (n, n_features)
            The points. See the notes of the class.
        y : ignored
            Present for compatibility with scikit-learn.

        Returns
        -------
        PCA
            The fitted estimator.

        Raises
        ------
        InvalidArgumentError
            If the points are not finite numbers in two dimensions or fewer than two, the columns of
            two blocks differ, elements are masked, or a parameter is invalid. A ``ValueError``.
        AlignmentError, UnsupportedCollectionError, LazyCollectionError, BlockLostError
            As for :func:`spliter.split`.
        """
        self._validate_params()
        if self.svd_solver not in {"auto", "covariance_eigh"}:
            raise InvalidArgumentError(
                f'svd_solver must be "auto" or "covariance_eigh", got {self.svd_solver!r}'
            )
        if not is_blocked(X):
            X = validated(self, X, accept_sparse="csr", dtype=FLOATS)
        with one_blas_thread(), open_data(X, materialize=False) as data:
            check_members(data, 1, "split(X)")
            found = summarise(data)
            if not data.in_memory:
                keep_schema(self, found.schema)
        self._keep(found)
        return self

    def _keep(self, found: Summary) -> None:
        n_samples, n_features = found.schema.n_items, found.schema.n_features
        if n_samples < 2:
            raise InvalidArgumentError(f"PCA needs two points or more, got n_samples={n_samples}")
        values, vectors = np.linalg.eigh(found.products(centred=True) / (n_samples - 1))
        variances = np.maximum(values[::-1], 0.0)
        _, components = svd_flip(None, vectors.T[::-1], u_based_decision=False)
        ratios = variances / variances.sum()
        kept = self._n_kept(variances, ratios, n_samples)
        rest = variances[kept:] if kept < min(n_samples, n_features) else np.zeros(1)
        dtype = found.schema.dtype
        self._fit_svd_solver = "covariance_eigh"
        self.n_samples_, self.n_components_ = n_samples, kept
        self.mean_ = found.moments.mean.astype(dtype)
        self.components_ = components[:kept].astype(dtype)
        self.explained_variance_ = variances[:kept].astype(dtype)
        self.explained_variance_ratio_ = ratios[:kept].astype(dtype)
        self.singular_values_ = np.sqrt(variances[:kept] * (n_samples - 1)).astype(dtype)
        self.noise_variance_ = dtype.type(rest.mean())

    def _n_kept(self, variances: Any, ratios: Any, n_samples: int) -> int:
        """Return the number of components for the parameter `n_components`."""
        wanted, most = self.n_components, min(n_samples, len(variances))
        if isinstance(wanted, str):
            if n_samples < len(variances):
                raise InvalidArgumentError(
                    f"n_components='mle' needs as many points as columns, got {n_samples} points"
                )
            return int(_infer_dimension(variances, n_samples))
        if wanted is None:
            return most
        if wanted > most:
            raise InvalidArgumentError(
                f"n_components={wanted} must be between 0 and min(n_samples, n_features)={most}"
            )
        if 0 < wanted < 1:
            return int(np.searchsorted(np.cumsum(ratios), wanted, side="right")) + 1
        return int(wanted)

    def fit_transform(self, X: Any, y: object = None) -> Any:
        """Find the components, and project the points on them.

        Parameters
        ----------
        X, y
            As for :meth:`fit`.

        Returns
        -------
        ndarray of shape (n, n_components), or collection
            As for :meth:`transform`.
        """
        return self.fit(X).transform(X)

    def transform(self, X: Any) -> Any:
        """Project points on the components.

        Parameters
        ----------
        X : array-like, sparse matrix or collection of shape (n, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n, n_components), or collection
            A collection with the same blocks if `X` is one.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidArgumentError
            If the columns of `X` differ from those of the fit, or values are not finite.
        """
        check_is_fitted(self)
        if not is_blocked(X):
            return super().transform(X)
        with open_data(X, materialize=False) as data:
            check_members(data, 1, "split(X)")
            dtype = self.components_.dtype
            expected = Requirements.by(self, dtype, accept_sparse=True).of_blocks(data.parts)
            trailing = (len(self.components_),)
            return data.parts.map_blocks(
                _project, expected, self, dtype=dtype, trailing_shape=trailing
            )


def _project(block: Any, requirements: Requirements, pca: PCA) -> npt.NDArray[Any]:
    """Project the points of one block."""
    points = requirements.points(block)
    if not points.shape[0]:
        return np.empty((0, len(pca.components_)), requirements.dtype)
    return np.asarray(pca._transform(points, xp=np, x_is_centered=False), requirements.dtype)
