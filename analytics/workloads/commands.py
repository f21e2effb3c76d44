"""The commands that findings name: to look, and to end what is on a GPU."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from analytics.workloads.process_lists import ListedProcess
from fallow.outside_text import has_hidden


def release_command(host: str, processes: Sequence[ListedProcess]) -> str:
    """Ends these processes: the scheduler's own command where one owns them, `kill` otherwise."""
    jobs = sorted({process.slurm_job_id for process in processes if process.slurm_job_id})
    if jobs:
        return f"scancel {operands(jobs)}"
    pods = sorted({(process.namespace or "default", process.pod) for process in processes if process.pod})
    if pods:
        return " && ".join(f"kubectl delete pod -n {quote(space)} {operands([pod])}" for space, pod in pods)
    pids = sorted({process.pid for process in processes})
    if pids:
        return f"ssh {operands([host])} kill {' '.join(map(str, pids))}"
    return look_command(host)


_ENDS_WORK = re.compile(r"(scancel|kubectl delete pod) |ssh (-- )?\S+ kill ")


def ends_work(command: str) -> bool:
    """Whether a finding's command ends work, and does not only look."""
    return _ENDS_WORK.match(command) is not None


def acts(command: str) -> bool:
    """Whether a finding's command does something: ends work, or is a line of a job script. Others only look."""
    return ends_work(command) or command.startswith("#SBATCH")


def look_command(host: str) -> str:
    return f"ssh {operands([host])} nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv"


def array_command(slurm_jobs: Sequence[str]) -> str:
    """Shows Slurm jobs with their arrays and heterogeneous jobs, task by task."""
    return f"squeue --jobs={quote(','.join(slurm_jobs))} --array"


def watch_command(host: str) -> str:
    """Shows how busy the host's GPUs are."""
    return f"ssh {operands([host])} nvidia-smi --query-gpu=uuid,name,utilization.gpu,memory.used --format=csv"


def operands(names: Sequence[str]) -> str:
    """Names as operands that no command takes for an option."""
    return " ".join([*(["--"] if any(name.startswith("-") for name in names) else []), *map(quote, names)])


def quote(name: str) -> str:
    """The name as one word of a shell line that holds no control character, whatever the name holds."""
    if not has_hidden(name):
        return shlex.quote(name)
    shown = (char if not has_hidden(char) and char not in "\\'" else _escaped(char) for char in name)
    return f"$'{''.join(shown)}'"


def _escaped(char: str) -> str:
    """Bash's and zsh's $'...' notation, byte by byte."""
    return "".join(f"\\{byte:03o}" for byte in char.encode())


_GPUS_MAX = 8
"""UUIDs in one command: a whole host. Nobody reads more side by side."""


def on_host(host: str, *words: str) -> str:
    """A command on another host. Its words pass two shells, this one and the host's, and are quoted for both."""
    dashes = "-- " if host.startswith("-") else ""
    return f"ssh {dashes}{quote(host)} {' '.join(quote(quote(word)) for word in words)}"


def monitor_command(host: str, gpus: Sequence[str]) -> str:
    """Half a minute of utilization, power and clocks of some GPUs, second by second."""
    return on_host(host, "nvidia-smi", "dmon", "-i", ",".join(gpus[:_GPUS_MAX]), "-s", "puc", "-c", "30")


def throttle_command(host: str, gpu: str) -> str:
    """Why a GPU's clocks are held down, how hot it is and what it may draw."""
    return on_host(host, "nvidia-smi", "-q", "-d", "PERFORMANCE,TEMPERATURE,POWER", "-i", gpu)
