"""Errors of tasks that are sent to the program, with the lines that raised them."""

from __future__ import annotations

import pickle
import sys
import traceback
from pathlib import Path

import pytest

from spliter_backends._shared.error_codec import ErrorCodec

CALLER = "def run(fn):\n    fn()\n"
TASK = "def task():\n    raise KeyError('mine')\n"


def test_only_lines_of_the_calling_module_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_engine_tasks.py").write_text(CALLER, encoding="utf-8")
    (tmp_path / "my_engine_tasks.py").write_text(TASK, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import _engine_tasks  # type: ignore[import-not-found]
    import my_engine_tasks  # type: ignore[import-not-found]

    errors = ErrorCodec(pickle.dumps, pickle.loads, "_engine_tasks")
    with pytest.raises(KeyError) as raised:
        _engine_tasks.run(my_engine_tasks.task)
    arrived = errors.decode(errors.encode(raised.value))
    functions = [frame.name for frame in traceback.extract_tb(arrived.__traceback__)]
    assert functions == ["test_only_lines_of_the_calling_module_are_left_out", "task"]
    for name in ("_engine_tasks", "my_engine_tasks"):
        del sys.modules[name]
