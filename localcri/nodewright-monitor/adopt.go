//go:build linux

package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/wire"
)

// reapTimeout is how long the parent of a process may take to reap it before the exit status
// counts as lost.
const reapTimeout = 2 * time.Second

// adopt takes over a container that a dead predecessor of this monitor had started. files are
// standard input, pidfd and master; -1 for a missing one. done gets the error of opening the log,
// or "".
func (c *container) adopt(files [3]int, done func(failure string)) {
	m := &c.m
	flags, pid := m.Flags, m.PID
	c.pid, c.startTime, c.startedAt = int(pid), m.StartTime, time.Unix(0, int64(m.At))
	c.shut = flags&wire.FlagStdinShut != 0
	c.lost = m.Lost
	c.phase = running
	switch {
	case flags&wire.FlagNotStarted != 0:
		c.phase, c.step, c.text = failed, m.Step, m.Text
	case flags&wire.FlagExited != 0:
		c.phase, c.told = ended, true
		c.endedAt, c.code, c.reason = time.Unix(0, int64(m.EndAt)), int32(uint32(m.Code)), m.Reason
		c.killedByOOM = flags&wire.FlagOOM != 0
	}
	m.Flags &= wire.FlagStdin | wire.FlagStdinOnce | wire.FlagTerminal
	m.PID, m.At, m.EndAt, m.StartTime, m.Code, m.Lost = 0, 0, 0, 0, 0, 0
	m.Step, m.Text, m.Reason = "", "", ""

	c.openLog(func(failure string) {
		defer done(failure) // without its log the container continues; its output is lost until ReopenLog
		if c.phase == failed {
			closeFiles(files[:])
			c.pump.enqueue(work{f: c.pump.finish})
			return
		}
		if m.Flags&wire.FlagTerminal != 0 && files[2] >= 0 && isMaster(files[2]) {
			master := files[2]
			files[2] = -1
			c.pump.hold(-1, master)
			c.pump.enqueue(work{f: func() { c.pump.setMaster(master) }})
		} else if m.Flags&wire.FlagTerminal == 0 {
			c.reopen(&files)
		}
		if c.phase == ended {
			closeFiles(files[:])
			c.pump.enqueue(work{f: c.pump.finish})
			return
		}
		c.oom = c.l.watchOOM(m.OOMFile)
		c.pidfd = files[1]
		files[1] = -1
		closeFiles(files[:])
		c.watch()
	})
}

// reopen opens the monitor's ends of the container's pipes again.
func (c *container) reopen(files *[3]int) {
	ours := [3]int{-1, -1, -1}
	if c.m.Flags&wire.FlagStdin != 0 && !c.shut {
		ours[0], files[0] = files[0], -1
		if ours[0] < 0 { // no copy was kept: the container may have seen the end of its input
			ours[0], _ = openFIFO(c.m.FIFODir+"/stdin", unix.O_WRONLY)
		}
	}
	for i := 1; i <= 2; i++ {
		ours[i], _ = openFIFO(c.m.FIFODir+"/"+fifoNames[i], unix.O_RDONLY)
	}
	once := c.m.Flags&wire.FlagStdinOnce != 0
	c.pump.hold(ours[0], -1)
	c.pump.enqueue(work{f: func() { c.pump.begin(ours, once) }})
}

// watch waits, by the pidfd, for the end of a process that is not a child.
func (c *container) watch() {
	if c.pidfd < 0 {
		c.pidfd = c.openProcess()
	}
	if c.pidfd < 0 {
		c.lostTrack()
		return
	}
	if s, ok := statOf(c.pid); ok && c.startTime == 0 {
		c.startTime = s.startTime
	}
	var w *watch
	w, err := c.l.poll.add(c.pidfd, unix.EPOLLIN, func(uint32) {
		c.l.poll.remove(w)
		c.inquire(time.Now(), time.Now().Add(reapTimeout))
	}, nil)
	if err != nil { // not a pidfd
		c.lostTrack()
	}
}

// openProcess opens the container's process. It returns -1 if the process is gone, or if its PID
// belongs to another process now.
func (c *container) openProcess() int {
	fd, err := unix.PidfdOpen(c.pid, 0)
	if err != nil {
		return -1
	}
	if s, ok := statOf(c.pid); !ok || c.startTime != 0 && s.startTime != c.startTime {
		_ = unix.Close(fd)
		return -1
	}
	return fd
}

// inquire finds out how a process ended that is the child of another process: from the stat file
// of its zombie or, on newer kernels, from its pidfd. It tries again until the deadline.
func (c *container) inquire(at, deadline time.Time) {
	if s, ok := statOf(c.pid); ok && s.state == 'Z' && (c.startTime == 0 || s.startTime == c.startTime) {
		c.over(death{s.code, at, s.unexecuted})
		return
	}
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if err := unix.IoctlPidfdInfo(c.pidfd, &info); err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
		c.over(death{status: unix.WaitStatus(info.Exit_code), at: at})
		return
	}
	if !time.Now().Before(deadline) {
		c.lostTrackAt(at)
		return
	}
	c.l.after(20*time.Millisecond, func() { c.inquire(at, deadline) })
}

func (c *container) lostTrack() { c.lostTrackAt(time.Now()) }

// lostTrackAt handles the end of a process whose exit status is unknown.
func (c *container) lostTrackAt(at time.Time) {
	switch c.phase {
	case running:
		c.oom.close()
		c.finish(unknownCode, at, false, "MonitorLost")
	case starting, creating:
		c.early = &death{status: unknownCode << 8, at: at}
	}
}
