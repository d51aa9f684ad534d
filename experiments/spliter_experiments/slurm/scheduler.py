"""Call SLURM's commands, with a timeout for each and errors that advise the user."""

from __future__ import annotations

import math
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spliter_experiments.harness.errors import SlurmError

COMMAND_SECONDS = 60

_UNREACHABLE = re.compile(
    r"unable to contact slurm controller|connection (refused|timed out)|zero bytes were transmitted"
    r"|socket timed out|could not establish a configuration source|munge.*(failed|error)",
    re.IGNORECASE,
)
_ADVICE = {
    r"node (configuration|count)": "no node of the partition is like that, or there are not so "
    "many; see sinfo, and the sizes in the site profile",
    r"time limit": "the partition allows less time; give --hours",
    r"invalid partition": "there is no such partition; sinfo lists them, --partition chooses",
    r"invalid (account|qos)|account/partition": "sacctmgr show associations user=$USER lists what "
    "you may use; give --account and --qos",
    r"feature": "no node of the partition has the feature; sinfo --format=%f lists them, "
    "--constraint chooses",
    r"nodes?list|node name": "sinfo lists the nodes; give another --nodelist",
    r"(limit|quota).*(exceeded|reached)|qos.*limit": "you have as many jobs or nodes as you may; "
    "submit again when some have ended",
}


class JobState(NamedTuple):
    """State of a job, or of one task of a job array, as reported by SLURM."""

    job_id: str
    state: str
    elapsed: str
    detail: str

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state not in LIVE


LIVE = frozenset(
    {
        *("PENDING", "CONFIGURING", "RUNNING", "SIGNALING", "STAGE_OUT", "COMPLETING", "RESIZING"),
        *("SUSPENDED", "STOPPED", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"),
    }
)
"""States of jobs that have not ended."""


class Partition(NamedTuple):
    """A partition: its number of nodes, and its time limit in seconds."""

    name: str
    is_default: bool
    nodes: int
    seconds: float


@dataclass(frozen=True)
class Slurm:
    """A SLURM cluster, used through its commands, each with a timeout in seconds."""

    environment: Mapping[str, str] | None = None
    seconds: float = COMMAND_SECONDS

    def submit(self, script: str, after: str | None) -> str:
        """Submit a batch script, to start when another job has ended, and return its number."""
        out = self._call(submit_command(script, after))
        # The cluster's name may follow after a semicolon.
        number = out.strip().partition(";")[0]
        if not number.isdecimal():
            raise SlurmError(f"sbatch answered {out.strip()!r}, which is no job number")
        return number

    def enqueue_compss(self, script: str, after: str | None) -> str:
        """Run a script that calls ``enqueue_compss``; arguments and result as for `submit`."""
        out = self._call(["env", f"SPLITER_AFTER={after or 'None'}", "bash", script])
        found = re.search(r"[Ss]ubmitted batch job (\d+)", out)
        if found is None:
            raise SlurmError(f"enqueue_compss told no job number: {out.strip()[-500:]!r}")
        return found[1]

    def live(self, name: str) -> list[str]:
        """Return the numbers of this user's waiting and running jobs of a name."""
        out = self._call(
            ["squeue", "--noheader", "--me", "--array", f"--name={name}", "--format=%A"]
        )
        return sorted(set(out.split()))

    def states(self, job_ids: Sequence[str]) -> list[JobState]:
        """Return the states of jobs, and of each task of a job array.

        SLURM forgets jobs some time after they have ended.
        """
        if not job_ids:
            return []
        known = {state.job_id: state for state in self._accounted(job_ids)}
        known |= {state.job_id: state for state in self._queued(job_ids)}
        return list(known.values())

    def _queued(self, job_ids: Sequence[str]) -> list[JobState]:
        command = ["squeue", "--noheader", "--states=all", "--array", "--format=%i|%T|%M|%r"]
        try:
            out = self._call([*command, f"--jobs={','.join(job_ids)}"])
        except SlurmError as error:
            # SLURM's error if it knows none of these jobs.
            if "invalid job id" in str(error).lower():
                return []
            raise
        return [JobState(*line.split("|", 3)) for line in out.splitlines() if line.count("|") >= 3]

    def _accounted(self, job_ids: Sequence[str]) -> list[JobState]:
        """Query the accounting database; return nothing if there is none."""
        command = ["sacct", "--noheader", "--allocations", "--parsable2", "--array"]
        try:
            out = self._call(
                [*command, "--format=JobID,State,Elapsed,ExitCode", f"--jobs={','.join(job_ids)}"]
            )
        except SlurmError:
            return []
        states = [JobState(*line.split("|")) for line in out.splitlines() if line.count("|") == 3]
        # "CANCELLED by 1000"; waiting tasks are one line, "12_[1-3]", and squeue lists each.
        return [
            state._replace(state=state.state.partition(" ")[0])
            for state in states
            if "[" not in state.job_id
        ]

    def partitions(self) -> list[Partition]:
        """Return the partitions."""
        out = self._call(["sinfo", "--noheader", "--format=%P|%F|%l"])
        found = [line.strip().split("|") for line in out.splitlines() if line.count("|") == 2]
        # %F counts nodes as allocated/idle/other/total.
        return [
            Partition(name.rstrip("*"), name.endswith("*"), int(nodes.split("/")[-1]), span(limit))
            for name, nodes, limit in found
        ]

    def _call(self, command: Sequence[str]) -> str:
        path = None if self.environment is None else self.environment.get("PATH", "")
        if shutil.which(command[0], path=path) is None:
            raise SlurmError(
                f"{command[0]} is not on the PATH: run this on a login node of the cluster (or "
                "load the module that brings SLURM)"
            )
        shown = shlex.join(command)
        try:
            done = subprocess.run(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SlurmError(
                f"`{shown}` gave no answer in {self.seconds:g} s: the controller of SLURM does "
                "not answer; `scontrol ping` tells whether it is up"
            ) from error
        except OSError as error:
            raise SlurmError(f"`{shown}` cannot be run: {error}") from error
        if done.returncode == 0:
            return done.stdout
        said = (done.stderr or done.stdout).strip()
        if _UNREACHABLE.search(said):
            raise SlurmError(
                f"the controller of SLURM does not answer; `scontrol ping` tells whether it is "
                f"up. `{shown}` said: {said}"
            )
        advice = next((text for key, text in _ADVICE.items() if re.search(key, said, re.I)), "")
        raise SlurmError(f"`{shown}`: {said or f'status {done.returncode}'}. {advice}".strip())


def span(text: str) -> float:
    """Parse a time limit in SLURM's format.

    Examples
    --------
    >>> span("2-01:00:00"), span("30:00"), span("infinite")
    (176400.0, 1800.0, inf)
    """
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in parts):
        return math.inf
    seconds = sum(int(part) * 60**place for place, part in enumerate(reversed(parts)))
    return float(86400 * int(days or 0) + seconds)


def submit_command(script: str, after: str | None) -> list[str]:
    """Return the command that submits a batch script.

    Examples
    --------
    >>> " ".join(submit_command("job.sbatch", "17"))
    'sbatch --parsable --dependency=afterany:17 job.sbatch'
    """
    dependency = [] if after is None else [f"--dependency=afterany:{after}"]
    return ["sbatch", "--parsable", *dependency, script]
