"""Runs a command of fallow with Slurm jobs as its Dask workers, and ends them with it.

    pip install 'fallow[dask]' dask-jobqueue
    python deploy/dask/slurm.py --jobs 16 --partition cpu -- ledger --lake /shared/fallow/lake

Every node must have the environment and the lake under the same path; the lake may also be in an object store.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from dask_jobqueue import SLURMCluster


def main() -> int:
    """Return the exit code of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=8, help="most jobs at a time (default: 8)")
    parser.add_argument("--cores", type=int, default=4, help="workers of a job, each with one core (default: 4)")
    parser.add_argument("--memory", default="8GiB", help="memory of a job (default: 8GiB, 2 GiB a worker)")
    parser.add_argument("--partition", help="partition of the jobs (default: the cluster's own)")
    parser.add_argument("--account", help="account of the jobs (default: the user's own)")
    parser.add_argument(
        "--time", default="02:00:00", help="time limit of a job; lost work runs again (default: 02:00:00)"
    )
    parser.add_argument("--interface", help="network interface that the nodes reach (default: that of the host name)")
    parser.add_argument("command", nargs="+", help="the command of fallow after --, such as: ledger --lake DIR")
    args = parser.parse_args()
    with SLURMCluster(
        queue=args.partition,
        account=args.account,
        cores=args.cores,
        processes=args.cores,
        memory=args.memory,
        walltime=args.time,
        interface=args.interface,
        python=sys.executable,
        scheduler_options={"dashboard": False},
        job_script_prologue=["export POLARS_MAX_THREADS=1 OMP_NUM_THREADS=1"],
    ) as cluster:
        cluster.adapt(minimum_jobs=1, maximum_jobs=args.jobs)
        address = cluster.scheduler_address.removeprefix("tcp://")
        fallow = [sys.executable, "-m", "fallow", *args.command, "--executor", f"dask://{address}"]
        return subprocess.run(fallow, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
