# For bash: a Debian kernel from its package, a machine that boots it, and a fresh Debian. The caller's working
# directory is the repository; for a machine it sets LIMIT_S, MEMORY_MIB and CPUS.
readonly TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}")
readonly CACHE=$TARGET/kernels

say() { echo "${0%/*}: $*"; }
fail() {
  say "$1" >&2
  echo "0 passed, 1 failed"
  exit 1
}

need() {
  local tool
  for tool; do
    command -v "$tool" >/dev/null || fail "$tool is missing: run ./setup.sh kernels"
  done
}

# The kernel's package, unpacked: prints the directory. kernel [VERSION-OR-FILE [FLAVOUR]]
kernel() {
  local deb=${1:-} flavour=${2:-cloud-amd64} package unpacked
  download() { apt-get -o APT::Sandbox::User=root download -qq "$package"; }
  mkdir -p "$CACHE/debs"
  if [[ ! -f $deb ]]; then
    package=linux-image${deb:+-$deb}-$flavour
    apt-cache show "$package" >/dev/null 2>&1 || apt-get update -qq >&2
    # A package that only names the current version's.
    package=$(apt-cache depends "$package" 2>/dev/null |
      sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1 | grep . || echo "$package")
    deb=$(find "$CACHE/debs" -name "${package}_*.deb" | sort -V | tail -n 1)
    if [[ -z $deb ]]; then
      # Stale lists name packages that are gone.
      (cd "$CACHE/debs" && { download || { apt-get update -qq && download; }; }) >&2 || return 1
      deb=$(find "$CACHE/debs" -name "${package}_*.deb" | sort -V | tail -n 1)
    fi
  fi
  unpacked=$CACHE/$(basename "$deb" .deb)
  if [[ ! -e $unpacked/unpacked ]]; then
    rm -rf "$unpacked"
    dpkg-deb -x "$deb" "$unpacked" >&2 || return 1
    find "$unpacked/lib/modules" -name '*.ko.xz' -exec xz -d -T 0 {} + || return 1
    busybox depmod -b "$unpacked" "$(ls "$unpacked/lib/modules")" >&2 || return 1
    touch "$unpacked/unpacked"
  fi
  echo "$unpacked"
}

# A fresh Debian 12 with these packages beside the least: prints its tar file.
fresh_debian() {
  local fresh
  fresh=$CACHE/bookworm-$(cksum <<<"$1" | cut -d ' ' -f 1)
  if [[ ! -e $fresh.tar ]]; then
    mkdir -p "$CACHE"
    rm -rf "$fresh"
    debootstrap --variant=minbase --include="$1" bookworm "$fresh" >&2 || return 1
    rm -rf "$fresh"/var/cache/apt/archives/*.deb "$fresh"/var/lib/apt/lists/*
    tar -C "$fresh" -cf "$fresh.new" . && mv "$fresh.new" "$fresh.tar" || return 1
    rm -rf "$fresh"
  fi
  echo "$fresh.tar"
}

# A module and what it needs, in the order of loading.
module_paths() {
  awk -v wanted="$2.ko" -F ': *' '
    { needs[$1] = $2; n = split($1, part, "/"); if (part[n] == wanted) found = $1 }
    function load(path,   each, i, n) {
      if (done[path]++) return
      n = split(needs[path], each, " ")
      for (i = n; i >= 1; i--) load(each[i])
      print path
    }
    END { if (found) load(found) }' "$1"/lib/modules/*/modules.dep
}

# Modules of an unpacked kernel, with what they need, into a directory; its file `order` names them in their order.
modules() {
  local kernel=$1 into=$2 release module path
  shift 2
  release=$(ls "$kernel/lib/modules")
  for module in "$@"; do
    for path in $(module_paths "$kernel" "$module"); do
      [[ -e $into/$(basename "$path") ]] && continue
      cp "$kernel/lib/modules/$release/$path" "$into/"
      basename "$path" >>"$into/order"
    done
  done
}

# A program or library with all that it is linked to, at the place where it is here.
copy() {
  local file
  for file in "$1" $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
    [[ -e $2$file ]] || install -D "$(realpath "$file")" "$2$file"
  done
}

# A root directory whose first process is tests/kernels/init, with weir and these programs beside busybox's:
# bare_root ROOT [PROGRAM...]
bare_root() {
  local root=$1 program
  shift
  mkdir -p "$root"/{bin,busybox,dev,proc,sys,run,tmp,etc,modules}
  install "$(command -v busybox)" "$root/busybox/busybox"
  install tests/kernels/init "$root/init"
  install -m 644 tests/kernels/checks "$root/checks"
  cc -O2 -Wall -static -o "$root/bin/udp" tests/kernels/udp.c
  for program in dash ip nsenter "$@"; do
    copy "$(command -v "$program")" "$root"
    ln -s "$(command -v "$program")" "$root/bin/$program"
  done
  ln -s dash "$root/bin/sh"
  # The tests look for weir where cargo has put it.
  copy "$TARGET/debug/weir" "$root"
  strip --strip-debug "$root$TARGET/debug/weir"
  ln -s "$TARGET/debug/weir" "$root/bin/weir"
}

# Boots $kernel with an initial root directory, and answers as the last line that it prints:
# boot CPIO LOG [PARAMETERS [OPTION...]], each OPTION the emulator's, which is "${EMULATOR[@]}" if that is set.
boot() {
  local cpio=$1 log=$2 parameters=${3:-} last
  shift 2
  shift || true
  # A machine that panics reboots, which -no-reboot turns into its end.
  timeout --foreground "$LIMIT_S" "${EMULATOR[@]:-qemu-system-x86_64}" -accel "${ACCEL:-tcg}" -cpu max \
    -smp "$CPUS" -m "$MEMORY_MIB" -nodefaults -no-user-config -display none -serial stdio -no-reboot \
    -kernel "$kernel"/boot/vmlinuz-* -initrd "$cpio" "$@" \
    -append "console=ttyS0 quiet panic=-1 $parameters" </dev/null | sed -u 's|\r||g' | tee "$log" || true
  last=$(grep -aE '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1 || true)
  [[ -n $last ]] || fail "the machine did not finish (it may run for $LIMIT_S s)"
  [[ $last == *" 0 failed" ]]
}
