# Payload of a QEMU guest (docs/vm.md): makes two recordings with scripts of bpftrace. All scripts are started again for the second recording.
# Needs bprec in `bin`, and in `lib` bpftrace with its libraries. `bin/bpftrace_NAME` are copies of the dynamic linker: a process, and so the owner of its
# programs, has the name of the script.
start() {
  pids=
  script opens 'tracepoint:syscalls:sys_enter_openat { @[comm] = count(); }'
  script switches 'tracepoint:sched:sched_switch { @[args->prev_comm] = count(); }'
  script reads 'kprobe:vfs_read { @[comm] = sum(arg2); }'
  script readrets 'kretprobe:vfs_read { @ = hist(retval); }'
  script writes 'kfunc:vfs_write { @[comm] = sum(args->count); }'
  script profile 'profile:hz:99 { @[kstack] = count(); }'
}
script() {
  bin/bpftrace_$1 --library-path lib lib/bpftrace.bin -e "$2" </dev/null >/out/$round-$1.txt 2>&1 &
  pids="$pids $!"
  # bpftrace says when its programs are attached.
  for _ in $(seq 600); do
    grep -q Attaching /out/$round-$1.txt && break
    kill -0 $! || break
    sleep 0.2
  done
}
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
for round in a b; do
  start
  sleep 10
  timeout 200 bin/bprec record -a -F 20 -o /out/bpftrace-$round.data -- sleep 2 >/out/$round.txt 2>&1
  echo "guest: $round: $?"
  kill -INT $pids
  wait $pids
done
true
