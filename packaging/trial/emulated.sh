#!/bin/bash
# The first tasks of programs for another processor, run by QEMU's user mode: emulated.sh DIST ARCH. Needs
# qemu-user-static and, for the C library, libc6-ARCH-cross.
set -eu -o pipefail
dist=$1 arch=$2
scratch=$(mktemp -d)
emulated() { "qemu-$arch-static" -L "/usr/$arch-linux-gnu" "$@"; }
finish() {
    kill $(jobs -p) 2>/dev/null || :
    wait
    rm -rf "$scratch"
}
trap finish EXIT

tar -xzf "$dist"/unisono-*-linux-"$arch".tar.gz --directory "$scratch" --strip-components=1
unisono=$scratch/bin/unisono
version=$(emulated "$unisono" --version --json)
echo "$version"
[[ $version == *'"target":"'"$arch"'-linux-gnu"'* ]]
emulated "$unisono" fit --dry-run -- "$unisono"

emulated "$unisono" events serve --listen "$scratch/broker" &
emulated "$unisono" events subscribe '#' --at "$scratch/broker" --reconnect=1min --count 1 >"$scratch/event" &
subscriber=$!
emulated "$unisono" events publish plant/1/heat hot --at "$scratch/broker" --reconnect=1min --count 120 --every 500ms &
wait "$subscriber"
cat "$scratch/event"
grep -q hot "$scratch/event"

fit=$(echo "$dist"/unisono-fit-*-linux-"$arch")
if [ -e "$fit" ]; then
    "qemu-$arch-static" "$fit" --dry-run --json -- "$unisono"
else
    echo "no static unisono-fit for $arch in $dist"
fi
