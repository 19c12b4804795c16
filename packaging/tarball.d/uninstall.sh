#!/bin/sh
# ./uninstall.sh [PREFIX]: stops the service, puts back what weir has turned, and removes what install.sh copied.
# /etc/weir stays.
set -eu
prefix=$(realpath -m "${1:-/usr/local}")
cd "$(dirname "$0")"

if [ -d /run/systemd/system ]; then systemctl disable --now weir.service || :; fi
# What a daemon that was killed may have left turned.
./bin/weir reset || :
for file in $(find bin lib share -type f); do rm -f "$prefix/$file"; done
rmdir "$prefix/share/doc/weir/examples" "$prefix/share/doc/weir" 2>/dev/null || :
# What a weir needs that runs, or could not be put back, stays.
rmdir /run/weir 2>/dev/null || :
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
