#!/bin/sh
# Measures work that looks idle, and idleness that looks like work, on a host with a real NVIDIA GPU without other users:
# benchmarks/hardware_doubtful.sh DIR [PHASE_SECONDS]. It takes seven to eight minutes, changes no setting, and needs python3 with
# PyTorch, CuPy and fallow's dependencies. It writes to DIR the agent's lake, the phases of the load (phases.jsonl), the killing of
# a kernel's process (killed.txt) and the driver's raw answers (capture.jsonl). `python -m benchmarks.busy_hardware DIR` reads them.
set -eu
out=$1 phase_s=${2:-20}
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
mkdir -p "$out"
export PYTHONDONTWRITEBYTECODE=1
on_grid() { python3 -c 'import time; time.sleep(-time.time() % 10); print(round(time.time()))'; }
phase() { echo "{\"phase\": \"$1\", \"begin_s\": $2, \"end_s\": $3, \"busy_ms\": $4}" >> "$out/phases.jsonl"; }

python3 -m fallow lake init --lake "$out/lake"
python3 -m fallow agent run --lake "$out/lake" --spool "$(mktemp -d)" --host gpu-host > "$out/agent.log" 2>&1 &
agent=$!
free_s=$(on_grid)
sleep 11
python3 tests/fakes/nvml/record.py "$out/capture.jsonl" --seconds 250 --every 4 &
record=$!
python3 benchmarks/hardware_load.py "$out/phases.jsonl" --phase-seconds "$phase_s" --work doubtful
phase "no process" "$free_s" $((free_s + 10)) 0
wait $record || echo "the recorder ended with $?"

python3 -c 'import torch; torch.cuda._sleep(10**12); torch.cuda.synchronize()' &
load=$!
sleep 8
spin_s=$(on_grid)
sleep 11
nvidia-smi --query-gpu=utilization.gpu,power.draw,memory.used --format=csv > "$out/killed.txt" 2>&1
phase "a process whose kernel never ends" "$spin_s" $((spin_s + 10)) 10000
kill -KILL $load
killed_s=$(on_grid)
for wait_s in 0 1 2 4 4; do
  sleep $wait_s
  date +%s.%N
  nvidia-smi --query-gpu=utilization.gpu,power.draw,memory.used --format=csv,noheader
  nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader
done >> "$out/killed.txt" 2>&1
phase "after the kill" "$killed_s" $((killed_s + 10)) 0

python3 benchmarks/hardware_load.py "$out/keep-alive.jsonl" --phase-seconds 60 --work keep-alive
cat "$out/keep-alive.jsonl" >> "$out/phases.jsonl"
sleep 11
kill -TERM $agent
wait $agent || echo "the agent ended with $?"
