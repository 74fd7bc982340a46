# The wheel, by pip, in a virtual environment and for the user.
. /shared/trial/first-tasks.sh
python3 -m venv /opt/own
timed install /opt/own/bin/pip install --quiet --no-index "/shared/dist/unisono-"*"_$(uname -m).whl"
(
    export PATH=/opt/own/bin:$PATH
    first_tasks python3
)
# beside pip's MPIs, as a user would: all in one environment
mpi_tasks "/shared/dist/unisono-"*"_$(uname -m).whl"
/opt/own/bin/pip uninstall --quiet --yes unisono
rm -r /tmp/mpich /tmp/openmpi
nothing_left
