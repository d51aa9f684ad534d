"""Undocumented Dask in the scheduler: spans of tasks, and the dashboard."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Collection
from typing import Any, Final

import dask
from distributed import span
from tornado.ioloop import IOLoop

from spliter_backends.dask.features import Feature, takes

OUR_SPAN: Final = {"name": ("spliter",), "ids": ("spliter",)}
"""Span of all tasks of SplIter outside a span of the program; the same for all clients."""


def _span_annotations_are_known() -> bool:
    with span("a") as made:
        return bool(dask.get_annotations()["span"] == {"name": ("a",), "ids": (made,)})


spans = Feature("spans", "the scheduler records each burst of tasks", _span_annotations_are_known)


def span_annotation() -> dict[str, Any]:
    """Return the annotation that assigns a task to our span."""
    return {"span": OUR_SPAN} if spans.usable() else {}


span_records = Feature(
    "span records",
    "the scheduler keeps a record of each group of tasks",
    lambda found: isinstance(found.groups, set) and isinstance(found.metadata["collections"], list),
)


def our_span(scheduler: Any) -> Any:
    """Return the scheduler's record of our span, or ``None``."""
    extension = scheduler.extensions.get("spans")
    found = None if extension is None else extension.spans.get(OUR_SPAN["ids"][-1])
    return found if found is not None and span_records.usable(found) else None


def _dashboard_is_known(scheduler: Any) -> bool:
    from distributed.dashboard.scheduler import BokehApplication, template_variables

    return (
        takes(BokehApplication, "applications", "server", "prefix", "template_variables")
        and callable(template_variables)
        and callable(scheduler.http_application.add_application)
    )


dashboard = Feature("dashboard", "the dashboard has no page of SplIter", _dashboard_is_known)


def _menu_is_known(variables: Any, again: Any) -> bool:
    from distributed.dashboard.components.scheduler import env

    page = env.get_template("simple.html").render(pages=["of-spliter"])
    # All pages of a scheduler share one list.
    return variables is again and isinstance(variables["pages"], list) and "of-spliter" in page


menu = Feature("dashboard menu", "the dashboard's menu does not show SplIter", _menu_is_known)


def add_dashboard_page(scheduler: Any, path: str, fill: Callable[..., None]) -> bool:
    """Add a page to a scheduler's dashboard, if it has one, and its menu; `fill` adds content."""
    try:
        from distributed.dashboard.scheduler import BokehApplication, template_variables
    except ImportError:  # of bokeh
        return False
    if not dashboard.usable(scheduler):
        return False
    variables = template_variables(scheduler)
    if menu.usable(variables, template_variables(scheduler)):
        variables["pages"].append(path.strip("/"))
        fill = functools.partial(_fill_below_menu, fill)
    page = BokehApplication({path: fill}, scheduler, prefix="", template_variables=variables)
    scheduler.http_application.add_application(page)
    page.initialize(IOLoop.current())
    page.start()
    return True


def _fill_below_menu(fill: Callable[..., None], scheduler: Any, extra: Any, doc: Any) -> None:
    """Fill a page with its content, in the template with Dask's menu."""
    from distributed.dashboard.components.scheduler import env

    fill(scheduler, extra, doc)
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)


failures = Feature(
    "failures",
    "tasks wait as long as all workers are paused",
    lambda scheduler: (
        {("no-worker", "erred"), ("queued", "erred")} <= scheduler._TRANSITIONS_TABLE.keys()
        and isinstance(scheduler.unrunnable, dict)
        and iter(scheduler.queued) is not None
    ),
)


def fail_tasks(scheduler: Any, tasks: Collection[Any], error: Exception, stimulus: str) -> None:
    """Set the error of tasks that no worker has, and of those that need their results."""
    if not tasks or not failures.usable(scheduler):
        return
    dependent: dict[Any, Any] = {}
    for task in tasks:
        found = scheduler.transition(
            task.key, "erred", exception=pickle.dumps(error), cause=task.key, stimulus_id=stimulus
        )
        dependent.update(found)
    scheduler.transitions(dependent, stimulus_id=stimulus)
