# Runs in the guest, as root, in /payload. Each check adds one line to /out/results.txt: `PASS <check>`, `FAIL <check>: <why>` or
# `SKIP <check>: <why>`. Test programs' own output goes to /out/tests, where the host counts it.
results=/out/results.txt
: >$results

pass() { echo "PASS $1" >>$results; }
fail() { echo "FAIL $1: $2" >>$results; }
skip() { echo "SKIP $1: $2" >>$results; }

# Programs, maps, links and pins that exist now; bpftool's own helper program comes and goes with it.
inventory() {
  for kind in prog map link; do
    bpftool $kind list | grep -E '^[0-9]+:' | grep -v pid_iter | sed "s/^/$kind /"
  done
  find /sys/fs/bpf -mindepth 1
}

# The binaries expect each other where they were built.
if [ -s built_at ]; then
  read -r built_at <built_at
  mkdir -p "${built_at%/*}"
  ln -s /payload/bin "$built_at"
fi
export PATH=/payload/bin:$PATH

inventory >/out/inventory-before.txt 2>&1

# Tests that need a processor at full speed: kernels before 6.18 walk long loops for minutes when emulated, or refuse them; and what is sent
# during a recording has to be through before it ends.
too_slow="loops_of_one_to_three_cost_one_to_three equal_names_and_tail_calls_are_told_apart
  a_storm_of_loads_leaves_nothing_unresolved every_command_of_perf_opens_it perf_annotates_a_program
  perf_counts_the_same_samples runs_are_the_kernels"
skips=
for test in $too_slow; do
  skip $test "takes a processor that is not emulated"
  skips="$skips --skip $test"
done

mkdir -p /out/tests
for test in tests/*; do
  # One at a time: recordings switch run statistics on for the whole machine, and these tests compare what is loaded before and after.
  timeout 180 "$test" --test-threads=1 --show-output $skips >"/out/tests/${test#tests/}.txt" 2>&1
done
# Again where programs may be preempted anywhere.
preempt=/sys/kernel/debug/sched/preempt
if [ -w $preempt ]; then
  was=$(sed 's/.*(\(.*\)).*/\1/' $preempt)
  echo full >$preempt
  timeout 180 tests/bpf-overlap --test-threads=1 --show-output >/out/tests/bpf-overlap-preempted.txt 2>&1
  echo "$was" >$preempt
fi

# recorded NAME LOAD...: records two seconds of a running load, and leaves what bprec and perf say of the file. The host compares.
recorded() {
  at=/out/recordings/$1
  shift
  mkdir -p "${at%/*}"
  bprec-load "$@" >"$at.load.txt" 2>"$at.load.err" &
  load=$!
  for _ in $(seq 300); do
    grep -q '^ready' "$at.load.txt" && break
    kill -0 $load 2>/dev/null || break
    sleep 0.1
  done
  # A rate that an emulated processor can keep up with.
  timeout 60 bprec record -a -F 1000 -o "$at.data" -- sleep 2 >"$at.record.txt" 2>&1
  echo $? >"$at.record.status"
  kill -INT $load
  wait $load
  timeout 60 bprec report --by-prog -i "$at.data" >"$at.report.txt" 2>"$at.report.err"
  timeout 60 bprec report --json -i "$at.data" >"$at.json" 2>>"$at.report.err"
  timeout 100 perf script -F event -i "$at.data" >"$at.perf.txt" 2>"$at.perf.err"
}

recorded all all
recorded trampoline trampoline

# Programs go some time after their last descriptor.
sleep 0.5
inventory >/out/inventory-after.txt 2>&1
if cmp -s /out/inventory-before.txt /out/inventory-after.txt; then
  pass nothing_is_left
else
  fail nothing_is_left "see inventory-before.txt and inventory-after.txt"
fi
exit 0
