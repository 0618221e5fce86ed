#!/bin/sh
# Installs a release of bprec for Linux: downloads the archive of this machine's architecture, compares it with SHA256SUMS, and copies its files.
#
# usage: [BPREC_URL=URL] [BPREC_SHA256=SUM] sh install.sh [--prefix DIR] [VERSION]
#
# URL is the folder of releases, https://…/releases/download or file:///…; its folder vVERSION has the files of VERSION. DIR is /usr/local by default.
# The copy of this script in a release knows both URL and VERSION. SUM is the SHA-256 of the archive, from a source other than the release: SHA256SUMS
# from the same server detects a damaged archive, but not a server that lies. Nothing is written to DIR before everything is checked.
set -eu
umask 022

released_url=
released_version=

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

# download FROM TO
download() {
  case $1 in
    file://*) cp "${1#file://}" "$2" ;;
    *)
      if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --output "$2" "$1"
      elif command -v wget >/dev/null; then
        wget --quiet --output-document="$2" "$1"
      else
        fail "install curl or wget"
      fi
      ;;
  esac || fail "cannot download $1"
}

# The last line of the script calls this function, so a script that was downloaded only in part does nothing.
main() {
  prefix=/usr/local
  version=$released_version
  while [ $# -gt 0 ]; do
    case $1 in
      --prefix) [ $# -gt 1 ] || fail "--prefix needs a directory"; prefix=$2; shift ;;
      --prefix=*) prefix=${1#*=} ;;
      -*) fail "unknown option $1; usage: install.sh [--prefix DIR] [VERSION]" ;;
      *) version=${1#v} ;;
    esac
    shift
  done
  url=${BPREC_URL:-$released_url}
  [ -n "$url" ] || fail "BPREC_URL is not set: the folder of releases, as https://…/releases/download"
  [ -n "$version" ] || fail "no version given, as 1.0.0"
  case $prefix in
    *[!A-Za-z0-9/._+-]* | [!/]*) fail "--prefix $prefix: expected an absolute path of letters, digits and ._+-" ;;
  esac
  [ "$(uname -s)" = Linux ] || fail "archives are for Linux; elsewhere, cargo builds the reporter (docs/install.md)"
  command -v sha256sum >/dev/null || fail "install sha256sum (coreutils)"

  name=bprec-$version-$(uname -m)
  directory=$(mktemp -d)
  trap 'rm -rf "$directory"' EXIT
  trap 'exit 1' HUP INT TERM
  download "${url%/}/v$version/SHA256SUMS" "$directory/SHA256SUMS"
  expected=$(awk -v name="$name.tar.gz" '$2 == name || $2 == "*" name { print $1 }' "$directory/SHA256SUMS")
  [ "${#expected}" -eq 64 ] || fail "SHA256SUMS of $version has no sum of $name.tar.gz"
  download "${url%/}/v$version/$name.tar.gz" "$directory/$name.tar.gz"
  sum=$(sha256sum <"$directory/$name.tar.gz")
  sum=${sum%% *}
  [ "$sum" = "$expected" ] || fail "$name.tar.gz has the SHA-256 $sum, and SHA256SUMS has $expected; nothing is installed"
  [ "$sum" = "${BPREC_SHA256:-$sum}" ] || fail "$name.tar.gz has the SHA-256 $sum, and not $BPREC_SHA256; nothing is installed"
  tar -xzf "$directory/$name.tar.gz" -C "$directory" || fail "cannot unpack $name.tar.gz"
  cd "$directory/$name" || fail "$name.tar.gz has no folder $name"
  starts=$(bin/bprec --version 2>&1) || fail "the program of $name.tar.gz does not run in $directory (TMPDIR): $starts"
  [ "$starts" = "bprec $version" ] || fail "the program of $name.tar.gz is $starts"

  unit=lib/systemd/system/bprec-record.service
  if [ -e $unit ]; then
    sed "s#^ExecStart=/bin/bprec#ExecStart=$prefix/bin/bprec#" $unit >"$directory/unit"
    cat "$directory/unit" >$unit
  fi
  # A running program cannot be overwritten, only replaced by a rename. The program is installed last: after a failure, the script can be run again.
  find . -type f ! -path ./bin/bprec >"$directory/files"
  echo ./bin/bprec >>"$directory/files"
  while IFS= read -r file; do
    to=$prefix/${file#./}
    mkdir -p "${to%/*}" || fail "cannot write $to"
    if ! { cp -p "$file" "$to.new" && mv -f "$to.new" "$to"; }; then
      rm -f "$to.new"
      fail "cannot write $to"
    fi
  done <"$directory/files"
  echo "$starts is installed: $prefix/bin/bprec"
}

main "$@"
