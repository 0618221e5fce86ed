#!/bin/sh
# Records a benchmark of the base and then of the change on this machine, and fails when BPF programs became more expensive.
#
# usage: BASE='COMMAND' NEW='COMMAND' [CONDITIONS='CONDITION…'] bpf-compare.sh [DIRECTORY]
#
# CONDITIONS has one condition per line (`bprec diff --fail-if`). DIRECTORY (the current one) gets base.data and new.data. STRICT=true fails
# on undecided conditions too. BPREC is the program (bprec); INTERVAL the milliseconds between snapshots of run statistics (500). With
# GITHUB_STEP_SUMMARY, three lines and the tables are appended to this file as Markdown. Needs root.
set -eu

bprec=${BPREC:-bprec}
directory=${1:-.}
: "${BASE:?the command that runs the benchmark of the base}" "${NEW:?the command that runs the benchmark of the change}"

record() {
    "$bprec" record -q -a -F 199 -I "${INTERVAL:-500}" -o "$1" -- sh -c "$2"
    # Only the owner can read a recording, so the user of sudo, who may keep the recordings, becomes the owner.
    [ -z "${SUDO_UID:-}" ] || chown "$SUDO_UID" "$1"
}
record "$directory/base.data" "$BASE"
record "$directory/new.data" "$NEW"

set -- "$directory/base.data" "$directory/new.data"
while IFS= read -r condition; do
    [ -z "$condition" ] || set -- "$@" --fail-if "$condition"
done <<END
${CONDITIONS:-}
END
[ "${STRICT:-false}" = false ] || set -- "$@" --strict

code=0
"$bprec" diff "$@" || code=$?
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
    {
        echo "### BPF programs"
        echo
        "$bprec" diff --explain-short "$@" 2>&1 | sed 's/^/- /'
        echo
        "$bprec" diff --markdown "$@" 2>/dev/null || true
    } >>"$GITHUB_STEP_SUMMARY"
fi
exit "$code"
