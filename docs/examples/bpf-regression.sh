#!/bin/sh
# Records a benchmark and fails when its BPF programs became more expensive than in the recording that is kept.
#
# usage: bpf-regression.sh KEPT.data CONDITION... -- BENCHMARK [ARGUMENT...]
#
# The first run has nothing to compare with: it keeps its recording and succeeds. BPREC is the program (bprec); INTERVAL the milliseconds
# between snapshots of run statistics (500, of which half a minute has 60); KEEP=1 keeps the new recording instead of the old one when
# nothing failed. The new recording is KEPT.data.new. Needs root.
set -eu

bprec=${BPREC:-bprec}
kept=${1:?usage: bpf-regression.sh KEPT.data CONDITION... -- BENCHMARK [ARGUMENT...]}
shift

conditions=$(mktemp)
trap 'rm -f "$conditions"' EXIT
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    printf '%s\n' "$1" >>"$conditions"
    shift
done
[ $# -gt 1 ] || { echo "bpf-regression.sh: no benchmark behind --" >&2; exit 2; }
shift

"$bprec" record -q -a -F 199 -I "${INTERVAL:-500}" -o "$kept.new" -- "$@"

if [ ! -e "$kept" ]; then
    mv "$kept.new" "$kept"
    echo "bpf-regression.sh: $kept is the recording to compare with from now on"
    exit 0
fi

set -- "$kept" "$kept.new"
while IFS= read -r condition; do
    set -- "$@" --fail-if "$condition"
done <"$conditions"

code=0
"$bprec" diff "$@" || code=$?
if [ "$code" = 0 ] && [ -n "${KEEP:-}" ]; then
    mv "$kept.new" "$kept"
fi
exit "$code"
