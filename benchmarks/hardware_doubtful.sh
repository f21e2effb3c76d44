#!/bin/sh
# Measures work that looks idle, and idleness that looks like work, on a host with a real NVIDIA GPU without other users:
# benchmarks/hardware_doubtful.sh DIR [PHASE_SECONDS]. Needs python3 with PyTorch, CuPy and fallow's dependencies. It writes to DIR
# the agent's lake, the phases of the load (phases.jsonl), the killing of a kernel's process (killed.txt) and the driver's raw
# answers (capture.jsonl).
set -eu
out=$1 phase_s=${2:-20}
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
mkdir -p "$out"
export PYTHONDONTWRITEBYTECODE=1
python3 -m fallow lake init --lake "$out/lake"
python3 -m fallow agent run --lake "$out/lake" --spool "$(mktemp -d)" --host gpu-host > "$out/agent.log" 2>&1 &
agent=$!
sleep "$phase_s"  # the GPU is free
python3 benchmarks/hardware_load.py "$out/phases.jsonl" --phase-seconds "$phase_s" --doubtful
{
  date +%s.%N
  python3 -c 'import torch; torch.cuda._sleep(10**12); torch.cuda.synchronize()' &
  load=$!
  sleep 20
  nvidia-smi --query-gpu=utilization.gpu,power.draw,memory.used --format=csv
  kill -KILL $load
  for wait_s in 0 1 1 2 4 8; do
    sleep $wait_s
    date +%s.%N
    nvidia-smi --query-gpu=utilization.gpu,power.draw,memory.used --format=csv,noheader
    nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader
  done
} > "$out/killed.txt" 2>&1
sleep 12
kill -TERM $agent
wait $agent || echo "the agent ended with $?"
python3 benchmarks/hardware_load.py "$out/recorded-phases.jsonl" --phase-seconds 8 --doubtful &
load=$!
python3 tests/fakes/nvml/record.py "$out/capture.jsonl" --seconds 85 --every 1
wait $load
python3 benchmarks/hardware_calls.py > "$out/calls.json"
