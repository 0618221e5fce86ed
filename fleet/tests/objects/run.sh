# Payload of a QEMU guest (docs/vm.md): makes two recordings with the tools of libbpf-tools and the objects of fixtures/bpf.
# Needs in `bin` the tools and bprec, and in `objects` the objects. All programs are loaded again for the second recording,
# which has XDP on four interfaces instead of one.
export PATH=/payload/bin:$PATH
run() { "$@" </dev/null >/dev/null 2>"/out/err/$round-$1.txt" & tools="$tools $!"; }
start() {
  tools=
  for t in bashreadline bindsnoop biosnoop capable drsnoop execsnoop exitsnoop filelife gethostlatency mdflush mountsnoop oomkill opensnoop runqslower sigsnoop solisten statsnoop tcpconnect tcpconnlat tcplife tcpstates tcptracer biostacks tcprtt; do run $t; done
  for t in biolatency biopattern biotop bitesize cachestat cpudist filetop hardirqs runqlat runqlen slabratetop softirqs tcpsynbl tcptop vfsstat; do run $t 900; done
  run syscount -i 900
  run fsdist -t ext4 900
  run fsslower -t ext4
  run funclatency -i 900 vfs_read
  run llcstat 900
  run numamove
  run offcputime 900
  run wakeuptime 900
  run readahead -d 900
  run klockstat -i 900
  run ksnoop trace ip_send_skb
  for o in objects/*.bpf.o; do
    name=${o##*/}; name=${name%.bpf.o}
    mkdir -p /sys/fs/bpf/$name
    bpftool prog loadall $o /sys/fs/bpf/$name autoattach >/dev/null 2>/out/err/$round-object-$name.txt ||
      bpftool prog loadall $o /sys/fs/bpf/$name >/dev/null 2>>/out/err/$round-object-$name.txt
  done
  bpftool net attach xdp pinned /sys/fs/bpf/xdp/xdp_count_packets dev lo 2>>/out/err/$round-xdp.txt
  before=-1
  now=$(bpftool prog list | grep -c '^[0-9]')
  while [ $before != $now ]; do before=$now; sleep 25; now=$(bpftool prog list | grep -c '^[0-9]'); done
  echo "guest: $round: $now programs"
}
stop() { kill $tools; bpftool net detach xdp dev lo; rm -rf /sys/fs/bpf/*; wait $tools; sleep 1; echo "guest: $(bpftool prog list | grep -c '^[0-9]') programs stay"; }
mkdir -p /out/err
mount -t bpf bpf /sys/fs/bpf 2>/dev/null
round=a; start
timeout 100 bprec record -a -F 20 -o /out/a.data -- sleep 2 >/out/a.txt 2>&1; echo "guest: a: $?"
stop
round=b; start
for i in 1 2 3; do unshare -n sh -c "bpftool net attach xdp pinned /sys/fs/bpf/xdp/xdp_count_packets dev lo; sleep 800" 2>>/out/err/b-xdp.txt & tools="$tools $!"; done
sleep 5
timeout 100 bprec record -a -F 20 -o /out/b.data -- sleep 2 >/out/b.txt 2>&1; echo "guest: b: $?"
bpftool net list >/out/net.txt 2>&1
stop
gzip -9k /out/*.data
true
