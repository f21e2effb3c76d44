#!/bin/sh
# Measures the agent on a host with a real NVIDIA GPU without other users: benchmarks/hardware.sh DIR [PHASE_SECONDS]
# Needs python3 with PyTorch and the `dependencies` of pyproject.toml. It changes no setting of the GPU. It writes to DIR
# the agent's lake, the phases of the load (phases.jsonl), the driver's raw answers (capture.jsonl), the cost of single
# calls (calls.json), launch times with and without the agent (jitter.jsonl), and the output of `fallow doctor`. `python -m benchmarks.hardware DIR` reads them.
set -eu
out=$1 phase_s=${2:-30}
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
mkdir -p "$out"
export PYTHONDONTWRITEBYTECODE=1
agent() { exec python3 -m fallow agent run --lake "$out/lake" --spool "$1" --host gpu-host; }
ended() { kill -TERM "$1"; wait "$1" || echo "the agent ended with $?"; }

nvidia-smi > "$out/nvidia-smi.txt" || true
python3 -m fallow doctor > "$out/doctor.txt" 2>&1 || echo "doctor: $?"
python3 -m fallow lake init --lake "$out/lake"
spool=$(mktemp -d)

( agent "$spool" ) > "$out/agent.log" 2>&1 &
agent=$!
sleep "$phase_s"  # the GPU is free
python3 benchmarks/hardware_load.py "$out/phases.jsonl" --phase-seconds "$phase_s"
sleep 21  # the GPU is free again
ps -o pid,rss,time,args --ppid $$ > "$out/processes.txt" || true
ended $agent

python3 benchmarks/hardware_load.py "$out/recorded-phases.jsonl" --phase-seconds 8 &
load=$!
python3 tests/fakes/nvml/record.py "$out/capture.jsonl" --seconds 85 --every 1
wait $load
python3 benchmarks/hardware_calls.py > "$out/calls.json"  # also what waiting for events costs

for turn in 1 2 3; do
  for with in no yes; do
    if [ $with = yes ]; then ( agent "$spool" ) >> "$out/agent.log" 2>&1 & agent=$!; sleep 3; fi
    echo "{\"agent\": \"$with\", \"seen\": $(python3 benchmarks/hardware_jitter.py --seconds 10)}" >> "$out/jitter.jsonl"
    if [ $with = yes ]; then ended $agent; fi
  done
done
