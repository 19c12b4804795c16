#!/usr/bin/env bash
# Installs what weir is built and tested with on Debian 12. Does nothing, quietly, where it is all
# there already. `setup.sh kernels` installs what `make test-kernels`, `test-drivers`, `test-debian` and
# `test-container` need, too.
set -euo pipefail

packages=(
  build-essential    # linker, make
  clang-19           # compiles the BPF programs
  clang-format-19    # checks their style
  dpkg-dev           # finds what the Debian package depends on
  bird2              # speaks BGP and BFD, in the tests
  dnsperf            # asks nsd, in the lab
  ethtool            # reads a driver's statistics, in the tests
  iperf3             # sends and receives, in the lab
  iproute2           # ip and tc, in the tests
  iptables           # both of its kinds, in the tests
  libbpf-dev         # bpf/bpf_helpers.h
  libelf-dev         # libbpf reads ELF objects
  libmemcached-tools # memcaslap: asks memcached, in the lab
  libpcap0.8         # compiles the filters of weir capture
  linux-libc-dev     # packet headers
  memcached          # serves, in the lab
  nftables           # nft, in the tests and in the lab
  nginx-light        # serves, in the lab
  nsd                # serves, in the lab
  pkg-config
  procps             # sysctl, in the tests
  python3            # an unmodified program, in the tests
  socat              # the same
  tcpdump            # captures beside weir capture, in the tests and in the lab
  util-linux         # setpriv, in the tests
  wrk                # asks nginx, in the lab
  zlib1g-dev
)

# To boot other kernels, a fresh Debian, and a container: tests/kernels/run, tests/debian/run, tests/container.
kernels_packages=(
  busybox-static  # the emulated machine's tools
  cpio            # packs its root directory
  debootstrap     # makes a fresh Debian
  qemu-system-x86 # emulates it
  runc            # runs a container of it
)
if [[ ${1:-} == kernels ]]; then packages+=("${kernels_packages[@]}"); fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null |
    grep -q 'install ok installed' || missing+=("$package")
done

if ((${#missing[@]})); then
  if ((EUID != 0)); then
    echo "setup.sh: these packages are missing: ${missing[*]}" >&2
    echo "setup.sh: run it as root, or: sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
  echo "setup.sh: installing ${missing[*]}"
  apt-get update -qq
  # The lab and the tests start these themselves, in namespaces. As services they stay off, unless they were here
  # before, maybe by another package: nginx-light only asks for nginx. Maintainer scripts ask for `nginx` or for
  # `nginx.service`, some after an option.
  off=()
  for service in bird memcached nginx nsd; do
    [[ -e /lib/systemd/system/$service.service ]] || off+=("$service")
  done
  policy=/usr/sbin/policy-rc.d
  if ((${#off[@]})) && [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    {
      echo '#!/bin/sh'
      echo 'for word; do'
      printf '  [ "${word%%.service}" != %s ] || exit 101\n' "${off[@]}"
      echo 'done'
    } >"$policy"
    chmod 755 "$policy"
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
  if [[ -d /run/systemd/system ]]; then
    for service in "${off[@]}"; do
      [[ ! -e /lib/systemd/system/$service.service ]] || systemctl --quiet disable --now "$service"
    done
  fi
fi

# Checks the alerts, in the tests: one program of a package whose server nobody here wants.
promtool=target/promtool
if [[ ! -x $promtool ]] && ! command -v promtool >/dev/null; then
  mkdir -p target
  package=$(mktemp -d)
  # Lists may be stale, or not there.
  download() { (cd "$package" && apt-get download -qq prometheus); }
  if ! { { download || { apt-get update -qq && download; }; } &&
    dpkg-deb --fsys-tarfile "$package"/*.deb | tar --extract --to-stdout ./usr/bin/promtool >"$promtool" &&
    chmod 755 "$promtool"; } 2>/dev/null; then
    rm -f "$promtool"
    echo "setup.sh: no promtool (Debian: prometheus): the alerts are not checked" >&2
  fi
  rm -r "$package"
fi

# Debian 12's own cargo is 1.63; weir needs the version that Cargo.toml names.
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
found=$(cargo --version 2>/dev/null | cut -d ' ' -f 2 || true)
if [[ -z $found ]] || [[ $(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1) != "$wanted" ]]; then
  echo "setup.sh: weir needs cargo $wanted or later; found: ${found:-none}" >&2
  echo "setup.sh: install rustup (the Rust project's own installer); it is also a package:" >&2
  echo "setup.sh:   apt-get install rustup && rustup default stable   (Debian 13 and later)" >&2
  exit 1
fi

if [[ ! -r /sys/kernel/btf/vmlinux ]]; then
  echo "setup.sh: this kernel has no BTF (/sys/kernel/btf/vmlinux): weir builds, but does not run" >&2
fi
