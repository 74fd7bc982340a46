# The Debian package, by apt, with nothing but what the root has.
. /shared/trial/first-tasks.sh
before=$(find / -xdev -type d -not -path '/shared*' -not -path '/tmp*' -not -path '/var/*' | sort)
timed install apt-get install --quiet=2 --yes --no-install-recommends "/shared/dist/unisono_"*"_$(dpkg --print-architecture).deb"
first_tasks /usr/bin/python3
mpi_tasks
ldconfig -p | grep "libunisono.so.0 " > /dev/null || { echo "the dynamic linker does not know the library" >&2; exit 1; }
[ ! -e /etc/systemd/system/multi-user.target.wants/unisono-events.service ] || { echo "a unit is enabled" >&2; exit 1; }
timed removal apt-get purge --quiet=2 --yes unisono
rm -rf /tmp/mpich /tmp/openmpi /root/.cache/unisono
nothing_left
after=$(find / -xdev -type d -not -path '/shared*' -not -path '/tmp*' -not -path '/var/*' -not -path '/root/.cache*' | sort)
left=$(comm -13 <(echo "$before") <(echo "$after"))
[ -z "$left" ] || { echo "directories left:" "$left" >&2; exit 1; }
