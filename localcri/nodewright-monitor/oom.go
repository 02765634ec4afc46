//go:build linux

package main

import (
	"bytes"
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// oomWatch counts the OOM kills of processes in a container's cgroup. The kernel reports each
// kill, so the count is known even if the cgroup is removed with its last process.
type oomWatch struct {
	l     *loop
	fd    int
	bell  int // v1: eventfd
	w     *watch
	count uint64
	short bool // v1 has reported a memory shortage
	storm int  // consecutive reports without a new kill
}

// oomDone is the time after a report of v1 by which the kernel has killed a process.
const oomDone = 200 * time.Millisecond

func (l *loop) watchOOM(file string) *oomWatch {
	if file == "" {
		return nil
	}
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	o := &oomWatch{l: l, fd: fd, bell: -1}
	o.count, _ = o.read()
	if path.Base(file) == "memory.oom_control" {
		o.listen(path.Dir(file))
		return o
	}
	o.w, _ = l.poll.add(fd, unix.EPOLLPRI, o.told, nil)
	return o
}

// listen subscribes to the reports of cgroup v1.
func (o *oomWatch) listen(dir string) {
	control, err := unix.Open(dir+"/cgroup.event_control", unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer closeFD(control)
	if o.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		o.bell = -1
		return
	}
	if _, err = unix.Write(control, []byte(strconv.Itoa(o.bell)+" "+strconv.Itoa(o.fd))); err == nil {
		o.w, _ = o.l.poll.add(o.bell, unix.EPOLLIN, o.told, nil)
	}
}

func (o *oomWatch) told(uint32) {
	if o.bell >= 0 {
		var b [8]byte
		_, _ = unix.Read(o.bell, b[:])
	}
	n, ok := o.read()
	switch {
	case !ok: // the cgroup is gone
		o.l.poll.remove(o.w)
		return
	case o.bell >= 0: // v1 reports before it kills
		o.short = true
		o.l.poll.arm(o.w, 0) // one check for all reports until then
		o.l.after(oomDone, func() {
			if o.fd >= 0 {
				o.l.poll.arm(o.w, unix.EPOLLIN)
				if n, ok := o.read(); ok {
					o.count = n
				}
			}
		})
		return
	case n != o.count:
		o.count, o.storm = n, 0
		return
	}
	// v2 also reports limits that were reached, which may happen all the time. In this case only
	// the count at the end is used.
	if o.storm++; o.storm > 64 {
		o.l.poll.remove(o.w)
	}
}

// read returns the number of killed processes. Both versions of cgroups call it oom_kill.
func (o *oomWatch) read() (uint64, bool) {
	var b [1024]byte
	n, err := unix.Pread(o.fd, b[:], 0)
	if err != nil {
		return 0, false
	}
	return oomKills(b[:n]), true
}

func oomKills(b []byte) uint64 {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("oom_kill ")); ok {
			n, _ := strconv.ParseUint(string(rest), 10, 64)
			return n
		}
	}
	return 0
}

// killed reports whether the kernel has killed a process of the cgroup for lack of memory, and
// ends the watch.
func (o *oomWatch) killed() bool {
	if o == nil {
		return false
	}
	n, ok := o.read()
	o.close()
	if ok {
		return n > 0
	}
	return o.count > 0 || o.short // the cgroup is gone
}

func (o *oomWatch) close() {
	if o == nil || o.fd < 0 {
		return
	}
	o.l.poll.remove(o.w)
	closeFiles([]int{o.fd, o.bell})
	o.fd, o.bell = -1, -1
}
