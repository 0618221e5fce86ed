#!/bin/busybox sh
# The first process in a guest: makes the usual file systems, runs /payload/run.sh, writes /out to the disk for results, switches the guest off.
export PATH=/usr/sbin:/usr/bin:/busybox HOME=/tmp TERM=dumb LC_ALL=C
/bin/busybox mkdir -p /busybox
/bin/busybox --install -s /busybox
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for module in /modules/*.ko; do
  [ -e "$module" ] && insmod "$module"
done
ip link set lo up
hostname guest
# On a slow emulated processor, sampling takes so much of the time that the kernel would lower the sampling rate.
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent
[ -w /proc/sys/net/core/bpf_jit_enable ] && echo 1 >/proc/sys/net/core/bpf_jit_enable

read -r up _ </proc/uptime
echo "guest: $(uname -rm), payload starts at ${up} s"
cd /payload
sh ./run.sh </dev/null
status=$?
read -r up _ </proc/uptime
echo "guest: payload ended with $status at ${up} s"
dmesg >/out/dmesg.txt
cat /proc/sys/kernel/tainted >/out/tainted.txt
echo "$status" >/out/status.txt
tar -C /out -cf /dev/vda . && sync
poweroff -f
