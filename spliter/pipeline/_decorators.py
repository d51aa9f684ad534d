"""``pipeline``, ``lazy`` and ``module``: what makes values lazy."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from spliter._cache import cache_nbytes
from spliter._errors import InvalidArgumentError
from spliter._split import Split
from spliter._task_checks import check_task_function, name_of
from spliter.pipeline import _frames  # noqa: F401 -- registers its class of lazy values
from spliter.pipeline._annotations import functions_of
from spliter.pipeline._capture import wrap
from spliter.pipeline._evaluate import evaluate
from spliter.pipeline._graph import Graph
from spliter.pipeline._lazy import computed, is_capturable, lazies_in
from spliter.pipeline._options import CURRENT
from spliter.pipeline._splittable import annotated_of, splittable


def pipeline(fn: Callable[..., Any], /) -> Callable[..., Any]:
    """Run a function on cache-sized batches of its arrays, in threads; its body is unchanged.

    Calls of NumPy and of :func:`splittable` functions in its body are captured, and run when the
    function returns: all calls of a stage on one batch, then on the next. Temporaries are as large
    as a batch.

    Parameters
    ----------
    fn : callable
        Takes and returns arrays, frames, and tuples, lists and dicts of them; or a function made by
        :func:`splittable`.

    Returns
    -------
    callable
        The same function. With a :class:`spliter.Split` among its arguments it runs where the
        blocks are: aligned collections of a Split are as many arguments.

    Raises
    ------
    InvalidArgumentError
        If `fn` is not callable, or is a coroutine or generator function.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter.pipeline import options, pipeline
    >>> @pipeline
    ... def standardized(x):
    ...     return (x - x.mean()) / x.std()
    >>> with options(batch=2):
    ...     standardized(np.array([1.0, 2.0, 3.0]))
    array([-1.22474487,  0.        ,  1.22474487])
    """
    check_task_function(fn)
    if inspect.isgeneratorfunction(fn):
        raise InvalidArgumentError(
            f"{name_of(fn)} is a generator function, which has no point of return; return a list "
            "instead"
        )

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        if lazies_in((args, kwargs)):  # called by another pipeline, which evaluates
            return fn(*args, **kwargs)
        if any(isinstance(each, Split) for each in (*args, *kwargs.values())):
            from spliter.pipeline._over_split import run_over_split

            return run_over_split(fn, args, kwargs)
        if CURRENT.get().batch == "auto" and _nbytes((args, kwargs)) <= small_nbytes():
            return fn(*args, **kwargs)
        graph = Graph(returns=True)
        return finish(graph, captured(fn, graph, args, kwargs))

    return run


def small_nbytes() -> int:
    """Return the bytes of arguments up to which the plain function runs.

    All temporaries of such a call are in the cache, and capturing a call takes as long as one on a
    few thousand items.
    """
    return cache_nbytes() // 4


def captured(
    fn: Callable[..., Any], graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a function on lazy arguments; return what it returns, not evaluated.

    Parameters
    ----------
    fn : callable
    graph : Graph
        Of the arguments.
    args, kwargs
        Plain arguments.
    """
    annotated = annotated_of(fn)
    try:
        if annotated is not None:
            return annotated.capture(graph, args, kwargs)
        return fn(*wrapped(args, graph), **wrapped(kwargs, graph))
    except Exception:
        evaluate(graph.root())  # changes of arrays that came before
        raise


def finish(graph: Graph, result: Any) -> Any:
    """Evaluate what a function returned.

    Parameters
    ----------
    graph : Graph
    result : object
        May contain lazy values.
    """
    evaluate(graph.root())
    return computed(result)


def wrapped(value: Any, graph: Graph) -> Any:
    """Return a value with arrays and frames made lazy, also in lists, tuples and dicts."""
    if is_capturable(value):
        return wrap(graph.source(value), graph)
    if type(value) is dict:
        return {key: wrapped(item, graph) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(wrapped(item, graph) for item in value)
    return value


def _nbytes(value: Any) -> int:
    """Return the bytes of all arrays, frames and lists in a value."""
    if isinstance(value, dict):
        return sum(map(_nbytes, value.values()))
    if isinstance(value, list | tuple) and len(value) < 100:
        return sum(map(_nbytes, value))
    if hasattr(value, "memory_usage"):
        return int(np.sum(value.memory_usage()))
    return int(getattr(value, "nbytes", 0)) or 100 * (
        len(value) if hasattr(value, "__len__") else 0
    )


def lazy(value: Any) -> Any:
    """Make an array or frame lazy: calls on it are captured, and run when a result is needed.

    Parameters
    ----------
    value : ndarray, DataFrame or Series
        Anything else, masked arrays and arrays of objects too, is returned unchanged.

    Returns
    -------
    lazy value
        Evaluated by ``float``, ``bool``, ``repr``, iteration, ``numpy.asarray``, pickling, and by
        calls that are not annotated. Changes in place happen at once.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter.pipeline import lazy
    >>> x = lazy(np.arange(4.0))
    >>> y = 2 * x + 1
    >>> y.shape, y.dtype
    ((4,), dtype('float64'))
    >>> y
    array([1., 3., 5., 7.])
    """
    graph = Graph(returns=False)
    return wrap(graph.source(value), graph) if is_capturable(value) else value


class AnnotatedModule:
    """A module whose annotated functions are captured; see :func:`module`."""

    def __init__(self, name: str) -> None:
        self._module = importlib.import_module(name)
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Return a function, annotated if a table of annotations has it."""
        value = getattr(self._module, name)
        types = functions_of(self._name.partition(".")[0]).get(f"{self._name}.{name}")
        made = value if types is None else splittable(value, **types)
        setattr(self, name, made)
        return made

    def __repr__(self) -> str:
        return f"<annotated module {self._name}>"


def module(name: str) -> AnnotatedModule:
    """Import a module so that calls of its annotated functions are captured.

    Parameters
    ----------
    name : str
        Full name, such as ``"skimage.color"``.

    Returns
    -------
    AnnotatedModule
        Has the attributes of the module. Functions without annotation are the module's own.

    Raises
    ------
    ImportError
        If there is no such module.

    Examples
    --------
    >>> from spliter.pipeline import module
    >>> module("math").sqrt(4.0)
    2.0
    """
    return AnnotatedModule(name)
