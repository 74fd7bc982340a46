#!/bin/bash
# The first tasks of programs for another processor, run by QEMU's user mode: emulated.sh DIST ARCH DEBIAN ROOT.
# DEBIAN is the name of the processor in Debian; ROOT has the files of a Debian system for it, with Python, and nothing
# in it has run. Needs qemu-user-static.
set -eu -o pipefail
dist=$1 arch=$2 debian=$3 root=$4
scratch=$(mktemp -d)
emulated() { "qemu-$arch-static" -L "$root" "$@"; }
python() { PYTHONPATH=$1 emulated "$root/usr/bin/python3" -c "$2"; }
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
[[ $version == *'"features":["mpi"]'* ]]
emulated "$unisono" doctor --without-compiling | tail -n 1
emulated "$unisono" fit --dry-run -- "$unisono"
emulated "$unisono" barrier --threads 2
emulated "$unisono" queue apply "$(dirname "$0")/../../examples/policies/three-classes.toml" --check

# the packages, as pip and dpkg would unpack them
site=$scratch/wheel/lib/python3/site-packages
mkdir -p "$site" "$scratch/deb"
python3 -m zipfile --extract "$dist"/unisono-*_"$arch".whl "$site"
cp -r "$site"/unisono-*.data/data/. "$scratch/wheel"
dpkg-deb --extract "$dist"/unisono_*_"$debian".deb "$scratch/deb"
imports='import unisono; print("libunisono", unisono.library_version())'
python "$site" "$imports"
LD_LIBRARY_PATH=$scratch/deb/usr/lib/$arch-linux-gnu python "$scratch/deb/usr/lib/python3/dist-packages" "$imports"

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
