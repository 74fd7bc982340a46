# The RPM package. No distribution that uses RPM is at hand: Debian's rpm unpacks it without looking for what it needs.
. /shared/trial/first-tasks.sh
timed install tar -xf /shared/rpm-files.tar --directory /
ldconfig /usr/lib64
export PYTHONPATH=/usr/share/unisono/python
first_tasks python3
mpi_tasks
