"""The command inside COMPSs: the files it writes for ``runcompss``, and what becomes of it."""

from __future__ import annotations

import itertools
import json
import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spliter_experiments.cli import app
from spliter_experiments.compare.engines import compss_launch
from spliter_experiments.compare.engines.compss_launch import (
    ENGINE,
    LAUNCHED,
    OPTIONS,
    PORT_RANGE,
    PORTS,
    STARTING,
    Progress,
    free_ports,
    launch,
    launched_progress,
    launched_resources,
    units_in,
    write_nodes,
)
from spliter_experiments.compare.engines.engine import ClusterChoice
from spliter_experiments.compare.workloads.app import ways_of
from spliter_experiments.compare.workloads.kmeans import KMeans
from spliter_experiments.compare.workloads.sums import Sum
from spliter_experiments.evaluation.runner import request_for, run_launched
from spliter_experiments.harness.errors import ClusterError, OptionError
from spliter_experiments.harness.records import ResultsFolder
from tests.conftest import SOURCE_ROOTS
from tests.running import run_command

pytestmark = pytest.mark.thorough

HERE = ClusterChoice(None, workers=3, threads=2)

FAKE = """\
#!{python}
import json, os, sys
from pathlib import Path

options = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:-1])
told = json.loads(os.environ["{launched}"])
said = {{
    "options": options,
    "application": Path(sys.argv[-1]).read_text(),
    "arguments": told["arguments"],
    "resources": Path(told["resources"]).read_text(),
}}
with open(r"{note}", "a") as note:
    note.write(json.dumps(said) + "\\n")
sys.exit({status})
"""


class Fake:
    """A ``runcompss`` that notes how it was called."""

    def __init__(self, folder: Path, status: int) -> None:
        self.note = folder / "calls"
        program = folder / "runcompss"
        text = FAKE.format(python=sys.executable, launched=LAUNCHED, note=self.note, status=status)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)

    def calls(self) -> list[dict[str, object]]:
        """Return the calls."""
        return [json.loads(line) for line in self.note.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Be no COMPSs application, on a machine without any."""
    monkeypatch.setattr(compss_launch, "runs_inside", lambda: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("COMPSS_HOME", "/compss")
    return monkeypatch


def test_nodes_that_are_written_can_be_read(tmp_path: Path) -> None:
    project, resources = write_nodes(tmp_path, Path("/compss"), starts=free_ports(3), threads=2)
    names = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
    assert units_in(resources) == dict.fromkeys(names, 2)
    used = list(ET.parse(project).getroot().iter("ComputeNode"))
    assert [node.get("Name") for node in used] == names
    assert {node.findtext("InstallDir") for node in used} == {"/compss"}
    assert len({node.findtext("WorkingDir") for node in used}) == 3


def test_ports_do_not_overlap() -> None:
    ports = sorted(free_ports(5))
    assert all(right - left >= 10 for left, right in itertools.pairwise(ports))


@pytest.mark.parametrize("text", [None, "<Resources", "<ResourcesList/>"])
def test_resources_that_cannot_be_used(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "resources.xml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(OptionError, match=r"resources\.xml"):
        units_in(file)


def test_too_many_nodes(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="at most 250"):
        write_nodes(tmp_path, Path("/compss"), starts=range(251), threads=1)


def test_what_runcompss_is_told(outside: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outside.setenv(OPTIONS, "--summary=true --comm='a b'")
    fake = Fake(tmp_path, status=7)
    assert launch(HERE, ["compare", "sum", "--input", "a file"]) == 7
    (call,) = fake.calls()
    assert call["arguments"] == ["compare", "sum", "--input", "a file"]
    options = call["options"]
    assert isinstance(options, dict)
    assert options["python_interpreter"] == sys.executable
    assert (options["summary"], options["comm"]) == ("true", "a b")
    # Not one that the system hands out to others, and none of the nodes'.
    master = int(options["master_port"])
    nodes = ET.fromstring(str(call["resources"])).iter("MinPort")
    assert master in range(*PORT_RANGE)
    assert all(abs(master - int(str(node.text))) >= PORTS for node in nodes)
    assert str(call["resources"]).count("<ComputeNode") == 3
    assert "launched_arguments()" in str(call["application"])
    assert not Path(options["project"]).exists(), "nothing is left"


def test_nodes_of_the_user(outside: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = Fake(tmp_path, status=0)
    _, resources = write_nodes(tmp_path, Path("/compss"), starts=[20_000], threads=4)
    assert launch(ClusterChoice(str(resources), 2, 1), []) == 0
    options = fake.calls()[0]["options"]
    assert isinstance(options, dict)
    assert options["resources"] == str(resources)
    assert "master_port" not in options
    assert options["project"] == str(tmp_path / "project.xml")
    assert resources.exists()


def test_nowhere_to_launch(outside: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no runcompss on PATH"):
        launch(HERE, [])
    Fake(tmp_path, status=0)
    with pytest.raises(OptionError, match=r"project\.xml beside it"):
        launch(ClusterChoice(str(tmp_path / "resources.xml"), 1, 1), [])


HANGING = """\
#!{python}
import json, os, time
from pathlib import Path
from spliter_experiments.compare.engines.compss_launch import Progress

with open(r"{note}", "a") as note:
    note.write("started\\n")
Progress(Path(json.loads(os.environ["{launched}"])["progress"])).tell(-1, {about!r})
time.sleep(600)
"""


@pytest.mark.parametrize(("about", "starts"), [("a way", 1), (STARTING, compss_launch.STARTS)])
def test_an_application_that_hangs(
    outside: pytest.MonkeyPatch, tmp_path: Path, about: str, starts: int
) -> None:
    program, note = tmp_path / "runcompss", tmp_path / "note"
    text = HANGING.format(python=sys.executable, launched=LAUNCHED, note=note, about=about)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    outside.setenv("PYTHONPATH", os.pathsep.join(map(str, SOURCE_ROOTS)))
    with pytest.raises(ClusterError, match=f"come to an end with {about}"):
        launch(HERE, [])
    assert note.read_text(encoding="utf-8").count("started") == starts


def test_resources_of_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched_resources() is None
    assert launched_progress() == Progress(None)
    told = {"arguments": [], "resources": "/a.xml", "progress": "/progress"}
    monkeypatch.setenv(LAUNCHED, json.dumps(told))
    assert launched_resources() == Path("/a.xml")
    assert launched_progress() == Progress(Path("/progress"))


def test_the_command_ends_as_the_application_did(
    outside: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = Fake(tmp_path, status=3)
    outside.setattr(sys, "argv", ["spliter", "compare", "sum", "--backend", "compss"])
    result = CliRunner().invoke(app, sys.argv[1:])
    assert result.exit_code == 3, result.output
    assert fake.calls()[0]["arguments"] == sys.argv[1:]


def test_a_launch_for_every_stand(outside: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = Fake(tmp_path, status=0)
    folder = ResultsFolder(tmp_path / "out")
    request = request_for("9", "laptop", "compss", nodes=(1, 2), repetitions=1)
    assert run_launched(request, folder) == len(request.runs())
    calls = fake.calls()
    assert sorted(str(call["resources"]).count("<ComputeNode") for call in calls) == [1, 2]
    for call in calls:
        words = call["arguments"]
        assert isinstance(words, list)
        assert words[:3] == ["experiment", "run", "9"]
        only = [words[at + 1] for at, word in enumerate(words) if word == "--only"]
        assert set(only) <= {run.id for run in request.runs()}
    assert [plan["nodes"] for plan in folder.plans()] == [[1, 2]]


def test_a_launch_that_fails(outside: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Fake(tmp_path, status=1)
    request = request_for("9", "laptop", "compss", nodes=(1,), repetitions=1)
    with pytest.raises(ClusterError, match="status 1"):
        run_launched(request, ResultsFolder(tmp_path / "out"))


def test_other_engines_are_not_launched(tmp_path: Path) -> None:
    for figure, engine in (("9", "dask"), ("18", "compss")):
        request = request_for(figure, "laptop", engine)
        assert run_launched(request, ResultsFolder(tmp_path / "out")) is None


def test_what_there_is_on_compss() -> None:
    ways = {app.name: set(ways_of(ENGINE, app).run) for app in (Sum, KMeans)}
    assert all({"spliter", "per-block"} <= there for there in ways.values())
    assert "spliter-materialized" in ways["kmeans"]


def test_progress_is_told_and_overdue(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress")
    progress.tell(600, "a way")
    assert progress.overdue() is None
    progress.tell(-1, "another way")
    assert progress.overdue() == "another way"
    assert Progress(None).overdue() is None


WITHOUT = """
import sys

sys.modules["pycompss"] = None
from spliter_experiments.evaluation import load_scenario, plan_runs
from spliter_experiments.compare.engines.engine import ClusterChoice
from spliter_experiments.compare.registry import load_engine
from spliter_experiments.harness.errors import ClusterError

runs = plan_runs(load_scenario("12"), "full", engine="compss")
print(sorted({run.configuration for run in runs}), max(run.nodes for run in runs))
try:
    load_engine("compss").connect(ClusterChoice(None, 1, 1)).__enter__()
except ClusterError as error:
    print(error)
"""


def test_runs_are_planned_where_there_is_no_compss() -> None:
    paths = os.pathsep.join(map(str, SOURCE_ROOTS))
    done = run_command(
        [sys.executable, "-c", WITHOUT], env={**os.environ, "PYTHONPATH": paths}, check=True
    )
    planned, why = done.stdout.splitlines()
    assert planned == "['baseline', 'materialized', 'spliter'] 16"
    assert "cannot be used here" in why
