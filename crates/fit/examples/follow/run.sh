#!/bin/sh
# What it gains and what it breaks when an OpenMP program follows its quota (decision 26). Needs root, gcc, and at
# least two processors. Argument: repetitions (7). Each starts a loop of OpenMP reductions in a quota of two
# processors, which becomes one after 0.3 s: by turns as it is, with one thread from the start, and with the
# preload; a run of more than 20 s is stopped and prints nothing. Then the preload is tried on a program that relies
# on its number of threads. On a quiet host it takes less than a minute, at most eight.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
if [ -w /sys/fs/cgroup/cgroup.procs ]; then
	group=/sys/fs/cgroup/unisono-follow-$$
	limit=$group/cpu.max two='200000 100000' one='100000 100000'
else
	group=/sys/fs/cgroup/cpu/unisono-follow-$$
	limit=$group/cpu.cfs_quota_us two=200000 one=100000
fi
mkdir "$group"
trap 'sleep 0.2; rmdir "$group"; rm -r "$work"' EXIT
gcc -O2 -fopenmp -fPIC -shared -o "$work/follow.so" "$here/preload.c" -ldl
gcc -O2 -fopenmp -o "$work/reductions" "$here/../reductions.c"
gcc -O2 -fopenmp -o "$work/parts" "$here/parts.c"

# run NAME=VALUE... -- PROGRAM ARGUMENT: in a quota that shrinks
run() {
	echo "$two" > "$limit"
	(
		sh -c 'echo $$ > "$1/cgroup.procs"; shift; exec timeout 20 env "$@"' sh "$group" "$@" &
		sleep 0.3
		echo "$one" > "$limit"
		wait $!
	) || true
}
for repetition in $(seq "${1:-7}"); do
	echo "repetition $repetition"
	echo "  as it is          $(run "$work/reductions" 400000 512) s"
	echo "  one thread        $(run OMP_NUM_THREADS=1 "$work/reductions" 400000 512) s"
	echo "  follows the quota $(run "FOLLOW_QUOTA=$limit" "LD_PRELOAD=$work/follow.so" "$work/reductions" 400000 512) s"
done
echo "a program that relies on its number of threads:"
echo "  as it is          $(run "$work/parts" 300000)"
echo "  follows the quota $(run "FOLLOW_QUOTA=$limit" "LD_PRELOAD=$work/follow.so" "$work/parts" 300000)"
