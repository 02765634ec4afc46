#!/bin/sh
# The suite in a user-mode Linux with cgroup v2 (make conformance-v2): what testvm -uml runs in it.
# Arguments are those of the suite's program.
set -e
ulimit -n 65536
# The API server wants an address, and takes that of the default route.
ip link add uplink type dummy
ip address add 192.0.2.2/24 dev uplink
ip link set uplink up
ip route add default via 192.0.2.1
# That kernel has one CPU; specs ask for more than one together, and use next to nothing.
echo 0-3 > "$TMPDIR/online"
mount --bind "$TMPDIR/online" /sys/devices/system/cpu/online
# An overlay over that kernel's hostfs holds no overlays of containers.
if [ -b /dev/ubda ]; then
	mkfs.ext4 -qF /dev/ubda
	mount /dev/ubda /var/lib
else
	mount -t tmpfs -o size=80% tmpfs /var/lib
fi
(while sleep 30; do cp "$TMPDIR"/conformance/*.log "$OUT" 2>/dev/null || true; done) & # in case that it does not end
status=0
build/bin/conformance -out "$TMPDIR/conformance" -config "kubeletCgroups: /kubelet
systemCgroups: /system" "$@" || status=$?
cp "$TMPDIR"/conformance/*.log "$TMPDIR"/conformance/*.xml "$TMPDIR"/conformance/*.json "$OUT" || true
exit $status
