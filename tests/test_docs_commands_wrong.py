"""Commands that cannot be typed are seen by the test of the pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytest.importorskip("typer")
pytest.importorskip("distributed")


from tests import test_docs_commands as typed
from tests.test_docs_commands import Shown, commands_of

pytestmark = pytest.mark.thorough

stage = typed.stage


WRONG = {
    "spliter compare histogram --rws 5": "No such option",
    "spliter compare histogram --ways spliter,no-such-way": "there is no way",
    "spliter compare histogram --sweep many": "whole numbers",
    "spliter experiment run --results out": "Missing argument",
    "spliter experiment run 99 --results out": "99",
    "spliter nothing": "No such command",
    "spliter slurm": "Missing argument",
    "python -m benchmarks scale-split --no-such-option 3": "does not take",
    "python benchmarks/no_such_script.py": "no_such_script",
    "python no_such_program.py": "prints no file",
    "python -c 'from spliter import no_such_name'": "cannot import name",
    "pip install '.[nothing]'": "no such extra",
    "pip install 'spliter[dask]'": "another project",
    "pip install 'pyspliter[nothing]'": "no such extra",
    "pip install no-such-package": "no-such-package",
    "pytest --no-such-option": "no option named",
    "pytest tests/no_such_folder": "there is no",
    "scripts/no-such-script": "No such file",
    "scripts/audit --no-such-option": "knows nothing of",
    "export DASK_DISTRIBUTED__NO_SUCH_THING=1": "no_such_thing",
    "dask scheduler --preload no_such_module": "No module named",
    "spliter doctor $NO_SUCH_VARIABLE": "unbound variable",
    "curl https://example.org": "not known to this test",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_commands_are_seen(
    text: str, stage: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    shown = Shown(ROOT / "README.md", 1, text)
    with pytest.raises(AssertionError, match=re.escape(WRONG[text])):
        typed.test_command_can_be_typed(shown, stage, monkeypatch, pytestconfig)


def test_blocks_are_read_as_a_shell_reads_them() -> None:
    page = ROOT / "README.md"
    text = (
        "Text\n\n```console\n$ one --of \\\n      these    # the first's\n$ two\nit prints\n...\n"
        '$ python -c "\nx = 1"\n$ for i in 1 2; do\n>     three $i\n> done\n```\n'
    )
    found = [*commands_of(page, text)]
    assert [shown.line for shown in found] == [4, 6, 9, 11]
    assert [shown.printed for shown in found] == [(), ("it prints", "..."), (), ()]
    assert found[0].text == "one --of \\\n      these    # the first's"
    assert found[3].text == "for i in 1 2; do\n    three $i\ndone"
