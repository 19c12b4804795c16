#!/bin/sh
# ./install.sh [PREFIX]: copies weir below PREFIX (default /usr/local). Starts nothing.
set -eu
# Whoever is not root may ask `weir doctor`, too.
umask 022
prefix=$(realpath -m "${1:-/usr/local}")
cd "$(dirname "$0")"

for file in $(find bin lib share -type f); do
  mkdir -p "$prefix/$(dirname "$file")"
  # Beside the old file, then in its place: a weir that runs keeps its own.
  cp "$file" "$prefix/$file.new"
  mv "$prefix/$file.new" "$prefix/$file"
done
sed -i "s|/usr/bin/weir|$prefix/bin/weir|" "$prefix/lib/systemd/system/weir.service"
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
case $prefix in
/usr | /usr/local) ;;
*) echo "before \`systemctl enable\`: systemctl link $prefix/lib/systemd/system/weir.service" ;;
esac
case $prefix/ in
/home/* | /root/* | /tmp/* | /var/tmp/*) echo "the service cannot start weir from $prefix (ProtectHome=, PrivateTmp=)" ;;
esac
echo "weir is in $prefix; to begin: $prefix/bin/weir doctor"
