# Runs in the guest, as root, in /payload. Each check adds one line to /out/results.txt: `PASS <check>`, `FAIL <check>: <why>` or
# `SKIP <check>: <why>`. Test programs' own output goes to /out/tests, where the host counts it.
results=/out/results.txt
: >$results

pass() { echo "PASS $1" >>$results; }
fail() { echo "FAIL $1: $2" >>$results; }
skip() { echo "SKIP $1: $2" >>$results; }

# Prints the programs, maps, links and pins that exist now, without the program `pid_iter` that bpftool loads for its own use.
inventory() {
  for kind in prog map link; do
    bpftool $kind list | grep -E '^[0-9]+:' | grep -v pid_iter | sed "s/^/$kind /"
  done
  find /sys/fs/bpf -mindepth 1
}

# Test programs look for the other binaries and for the sources under the paths of the build.
read -r built_at <built_at
mkdir -p "${built_at%/*}"
ln -s /payload/bin "$built_at"
read -r sources_at <sources_at
mkdir -p "$sources_at/bpf"
ln -s /payload/sources/fixtures "$sources_at/fixtures"
export PATH=/payload/bin:$PATH

inventory >/out/inventory-before.txt 2>&1

mkdir -p /out/tests /out/again
while read -r name program of; do
  test=tests/$program
  read -r began _ </proc/uptime
  "$test" --list $of </dev/null >/tmp/list.txt 2>/dev/null
  skips=
  while read -r one why; do
    if grep -qxE "(.*::)?$one: test" /tmp/list.txt; then
      skip "$one" "$why"
      skips="$skips --skip $one"
    fi
  done <withheld
  # The tests run one at a time: a recording switches run statistics on for the whole machine, and some tests compare the programs
  # that are loaded before and after.
  timeout 600 "$test" --test-threads=1 --show-output $skips $of </dev/null >"/out/tests/$name.txt" 2>&1
  # One or two failed tests run once more; the host counts this run. Their names are printed before the result.
  if grep -q '^test result: FAILED.* [12] failed' "/out/tests/$name.txt"; then
    failed=$(grep -B3 '^test result: FAILED' "/out/tests/$name.txt" | grep '^    ')
    timeout 300 "$test" --test-threads=1 --show-output --exact $failed </dev/null >"/out/again/$name.txt" 2>&1
  fi
  read -r ended _ </proc/uptime
  result=$(grep '^test result: ' "/out/tests/$name.txt" | cut -d' ' -f3-8)
  echo "guest: $name: ${result:-no result} after $((${ended%.*} - ${began%.*})) s"
done <runs

# recorded NAME LOAD...: records two seconds of a running load. Leaves the outputs of bprec and perf for the file; the host compares them.
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
  # An emulated processor can keep up with this rate.
  timeout 60 bprec record -a -F 1000 -o "$at.data" -- sleep 2 >"$at.record.txt" 2>&1
  echo $? >"$at.record.status"
  kill -INT $load
  wait $load
  timeout 60 bprec report --by-prog -i "$at.data" >"$at.report.txt" 2>"$at.report.err"
  timeout 60 bprec report --json -i "$at.data" >"$at.json" 2>>"$at.report.err"
  timeout 100 perf script -F event -i "$at.data" >"$at.perf.txt" 2>"$at.perf.err"
}

while read -r load || [ -n "$load" ]; do
  [ -z "$load" ] || recorded "$load" "$load"
done <recordings

# The kernel frees programs some time after their last descriptor is closed.
sleep 0.5
inventory >/out/inventory-after.txt 2>&1
if cmp -s /out/inventory-before.txt /out/inventory-after.txt; then
  pass nothing_is_left
else
  fail nothing_is_left "see inventory-before.txt and inventory-after.txt"
fi

# A healthy kernel prints none of these. Its taint flags stay set after a message has left the log's buffer: 128 is an oops, 512 a warning.
complaint='WARNING:|BUG:|Oops|Call [Tt]race:|Kernel panic|general protection fault|INFO: (rcu|task)|soft lockup|refcount_t:|Unable to handle kernel'
first=$(dmesg | grep -E "$complaint" | head -n 1)
taint=$(cat /proc/sys/kernel/tainted)
if [ -z "$first" ] && [ $((taint & (128 | 512))) = 0 ]; then
  pass kernel_log
else
  fail kernel_log "taint flags $taint, first line: $first"
fi
exit 0
