"""``pipeline``, ``lazy`` and ``module``: what makes values lazy."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from spliter._checks import check_task_function
from spliter._split import Split
from spliter.pipeline._annotations import functions_of
from spliter.pipeline._calls.calls import source
from spliter.pipeline._calls.metas import is_array, is_frame
from spliter.pipeline._calls.split_types import share_of
from spliter.pipeline._capture import arrays  # noqa: F401 -- registers the classes
from spliter.pipeline._capture.annotated import captured, splittable
from spliter.pipeline._capture.capture import wrap
from spliter.pipeline._capture.containers import ARGUMENT, settled
from spliter.pipeline._capture.lazy import lazies_in
from spliter.pipeline._options import CURRENT
from spliter.pipeline._running.evaluate import LocalGraph


def pipeline(fn: Callable[..., Any], /) -> Callable[..., Any]:
    """Run a function on cache-sized batches of its arrays, in threads; its body is unchanged.

    Calls of NumPy and of :func:`splittable` functions in its body are captured, and run when the
    function returns: all calls of a stage on one batch, then on the next.

    Parameters
    ----------
    fn : callable
        Takes and returns arrays, and tuples, lists and dicts of them; or one by :func:`splittable`.

    Returns
    -------
    callable
        The same function. With a :class:`spliter.Split` among its arguments it runs where the
        blocks are: aligned collections of a Split are as many arguments.

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
    check_task_function(fn, "a pipeline")
    small = [0.0]  # the largest share of arguments of which all values were small

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        return _run(fn, small, args, kwargs)

    return run


# Apart from what `pipeline` returns, which is pickled with all that it refers to if the function
# is of `__main__`.
def _run(fn: Callable[..., Any], small: list[float], args: Any, kwargs: dict[str, Any]) -> Any:
    if any(isinstance(each, Split) for each in (*args, *kwargs.values())):
        from spliter.pipeline._over_split.run import run_over_split

        return run_over_split(fn, args, kwargs)
    if lazies_in((args, kwargs)):  # called by another pipeline, which evaluates
        return fn(*args, **kwargs)
    share = max(map(_share, (*args, *kwargs.values())), default=0.0)
    if share <= small[0] and CURRENT.get().runs_plain(share):
        return fn(*args, **kwargs)
    graph = LocalGraph()
    result = captured(fn, graph, args, kwargs)
    if graph.error is None:  # the body may have caught it, and return something else
        graph.evaluate()
    result = settled(result)
    if not graph.was_planned and share < math.inf:
        small[0] = max(small[0], share)  # next time, they need not be captured
    return result


def _share(value: Any) -> float:
    """Return how large an argument is; infinity if that is not known."""
    if value is None or callable(value) or np.isscalar(value):
        return 0.0
    return share_of(value) if is_array(value) or is_frame(value) else math.inf


def lazy(value: Any) -> Any:
    """Make an array lazy: calls on it are captured, and run when a result is needed.

    Do not change it as long as calls are pending. Anything else, masked arrays and arrays of
    objects too, is returned unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter.pipeline import lazy
    >>> y = 2 * lazy(np.arange(4.0)) + 1
    >>> y.shape, y.dtype
    ((4,), dtype('float64'))
    >>> y
    array([1., 3., 5., 7.])
    """
    return wrap(source(value), LocalGraph(), ARGUMENT) if is_array(value) else value


class AnnotatedModule:
    """A module whose annotated functions are captured; see :func:`module`."""

    def __init__(self, name: str) -> None:
        self._module = importlib.import_module(name)
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Return a function, annotated if a table of annotations has it."""
        found = functions_of(self._name.partition(".")[0]).get(f"{self._name}.{name}")
        if isinstance(found, tuple):  # a function that the module does not have
            value, found = found
        else:
            value = getattr(self._module, name)
        made = value if found is None else splittable(value, **found)
        setattr(self, name, made)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return AnnotatedModule, (self._name,)


def module(name: str) -> AnnotatedModule:
    """Import a module, such as ``"skimage.color"``, whose annotated functions are captured.

    Examples
    --------
    >>> from spliter.pipeline import module
    >>> module("math").sqrt(4.0)
    2.0
    """
    return AnnotatedModule(name)
