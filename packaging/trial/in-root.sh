#!/bin/bash
# Runs a trial in a fresh Debian root: in-root.sh ROOT SHARED KIND. SHARED has the packages (dist), wheels of MPIs
# (wheelhouse) and the scripts of this folder (trial). ROOT stays as it is: what the trial writes goes to memory.
set -eu -o pipefail
root=$1 shared=$2 kind=$3
enter() {
    mount --make-rprivate /
    scratch=$(mktemp -d)
    mount -t tmpfs tmpfs "$scratch"
    mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
    mkdir -p "$scratch/root/shared"
    mount --bind "$shared" "$scratch/root/shared"
    mount -o remount,bind,ro "$scratch/root/shared"
    mount -t proc proc "$scratch/root/proc"
    mount --rbind /sys "$scratch/root/sys"
    mount --rbind /dev "$scratch/root/dev"
    exec chroot "$scratch/root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash "/shared/trial/$kind.sh"
}
export -f enter
export root shared kind
exec unshare --mount --pid --fork --kill-child bash -eu -c enter
