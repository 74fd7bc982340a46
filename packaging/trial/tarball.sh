# The tarball, unpacked into a folder of nobody's choice.
. /shared/trial/first-tasks.sh
unpack() { tar -xzf "/shared/dist/unisono-"*"-$(uname -m).tar.gz" --directory /srv --strip-components=1 --one-top-level=any; }
timed install unpack
export PATH=/srv/any/bin:$PATH PYTHONPATH=/srv/any/lib/python
first_tasks python3
mpi_tasks
rm -r /srv/any
nothing_left
