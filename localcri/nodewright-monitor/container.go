//go:build linux

package main

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/wire"
)

// phase is the stage of a container.
type phase int

const (
	preparing phase = iota
	creating
	starting
	running
	ended
	failed
)

// container is a container that this monitor has started or adopted.
type container struct {
	l     *loop
	m     wire.Message // the request, with the latest record and log path
	phase phase
	pump  *pump

	fifos   fifos
	console *console
	outputs []*capture

	pid       int
	pidfd     int
	startTime uint64
	startedAt time.Time
	early     *death // the container's end, if it came before the executor reported the start
	oom       *oomWatch
	shut      bool // standard input has ended

	endedAt     time.Time
	code        int32
	killedByOOM bool
	reason      string
	lost        uint64
	told        bool // the exit was reported

	step, text string // the failed step of the start, and the reason
	waiters    []waiter
}

// waiter is a request that waits for a container's start.
type waiter struct {
	c   *conn
	seq uint32
}

const (
	maxID       = 128
	maxWaiters  = 64
	drainTime   = 2 * time.Second // how long a hanging log may delay the report of an exit
	unknownCode = 255
	// notExecutedCode is the exit code of a container whose program could not be executed, as for
	// a container that could not be started.
	notExecutedCode = 128
)

// refusal returns the mistake in a request to start or adopt a container; "" if there is none.
func refusal(m *wire.Message) string {
	switch {
	case m.ID == "" || len(m.ID) > maxID || strings.ContainsAny(m.ID, "/\x00"):
		return "ID: 1 to 128 bytes without a slash are allowed"
	case !absolute(m.FIFODir) || len(m.FIFODir) > 4000:
		return "FIFODir " + m.FIFODir + ": an absolute path is needed"
	case !absolute(m.ExitFile):
		return "ExitFile " + m.ExitFile + ": an absolute path is needed"
	case m.Log != "" && !absolute(m.Log):
		return "Log " + m.Log + ": an absolute path is needed, or none"
	case len(m.Record) > wire.MaxRecord:
		return "Record: 32 KiB are allowed"
	case !fits(m, m.Record):
		return "message of more than 60 KiB"
	}
	if m.Type == wire.Adopt {
		return ""
	}
	terminal := m.Flags&wire.FlagTerminal != 0
	switch {
	case len(m.Create) == 0 || !absolute(m.Create[0]):
		return "Create: an absolute path is needed first"
	case len(m.Start) == 0 || !absolute(m.Start[0]):
		return "Start: an absolute path is needed first"
	case !absolute(m.PIDFile):
		return "PIDFile " + m.PIDFile + ": an absolute path is needed"
	case terminal && (!absolute(m.ConsoleSocket) || len(m.ConsoleSocket) > 107):
		return "ConsoleSocket " + m.ConsoleSocket + ": a terminal needs an absolute path of at most 107 bytes"
	}
	return ""
}

// fits reports whether one message can describe a container with this record, whatever state it
// gets into.
func fits(m *wire.Message, record []byte) bool {
	told := *m
	told.Record = record
	b, err := told.Append(nil)
	return err == nil && len(b) <= wire.MaxMessage-maxMessage
}

func (l *loop) newContainer(m *wire.Message) *container {
	c := &container{l: l, m: *m, pidfd: -1, phase: preparing, pump: l.newPump(m.ID)}
	c.m.Seq, c.m.Files = 0, 0
	c.fifos = fifos{ours: [3]int{-1, -1, -1}, theirs: [3]int{-1, -1, -1}}
	c.pump.shut = func() { l.post(c.stdinShut) }
	l.containers[c.m.ID] = c
	return c
}

// start starts a container. Each step begins when the previous one has ended; the loop waits for
// none of them.
func (c *container) start() {
	terminal := c.m.Flags&wire.FlagTerminal != 0
	var err error
	if c.fifos, err = makeFIFOs(c.m.FIFODir, !terminal && c.m.Flags&wire.FlagStdin != 0); err != nil {
		c.fail("prepare", err.Error())
		return
	}
	if terminal {
		if c.console, err = c.l.console(c.m.ConsoleSocket); err != nil {
			c.fail("prepare", err.Error())
			return
		}
	}
	c.openLog(func(failure string) {
		if failure != "" {
			c.fail("prepare", failure)
			return
		}
		c.create()
	})
}

// openLog opens the log in the pump's goroutine, which may wait for the disk, and calls done in
// the loop.
func (c *container) openLog(done func(failure string)) {
	p, path := c.pump, c.m.Log
	p.enqueue(work{f: func() {
		log, err := newLog(path, func(lost uint64, message string) {
			c.l.post(func() { c.logLost(lost, message) })
		})
		failure := ""
		if err != nil {
			failure = "log " + path + ": " + err.Error()
		}
		p.log = log
		c.l.post(func() { done(failure) })
	}})
}

func (c *container) create() {
	c.phase = creating
	_ = unix.Unlink(c.m.PIDFile)
	files := c.fifos.theirs
	if c.console != nil {
		closeFiles(c.fifos.theirs[:])
		k, w, err := c.l.capturePipe()
		if err != nil {
			c.fail("create", err.Error())
			return
		}
		defer closeFD(w)
		c.outputs = []*capture{k}
		files = [3]int{c.l.null, w, w}
	} else {
		for i := 1; i <= 2; i++ {
			k, err := c.l.capture(c.fifos.ours[i])
			if err != nil {
				c.fail("create", err.Error())
				return
			}
			c.outputs = append(c.outputs, k)
		}
		if files[0] < 0 {
			files[0] = c.l.null
		}
	}
	c.l.command(c.m.Create, c.m.Dir, files, c.m.ExecutorLog, time.Duration(c.m.Timeout), c.outputs, c.created)
	if c.phase == creating {
		closeFiles(c.fifos.theirs[:]) // otherwise the outputs would never end
	}
}

func (c *container) created(failure string) {
	pid := readPID(c.m.PIDFile)
	if failure != "" {
		if pid != 0 {
			c.killStray(pid)
		}
		c.fail("create", failure)
		return
	}
	if pid == 0 {
		c.fail("create", "executor left no PID in "+c.m.PIDFile)
		return
	}
	if c.console != nil {
		master, err := c.console.take()
		if err != nil {
			c.killStray(pid)
			c.fail("create", err.Error())
			return
		}
		c.console.close()
		c.console = nil
		c.pump.hold(-1, master)
		c.pump.enqueue(work{f: func() { c.pump.setMaster(master) }})
		closeFiles(c.fifos.ours[:])
	} else {
		ours := c.fifos.ours
		c.fifos.ours = [3]int{-1, -1, -1}
		once := c.m.Flags&wire.FlagStdinOnce != 0
		c.pump.hold(ours[0], -1)
		c.pump.enqueue(work{f: func() { c.pump.begin(ours, once) }})
	}
	c.claim(pid)
	c.oom = c.l.watchOOM(c.m.OOMFile)
	c.phase = starting
	k, w, err := c.l.capturePipe()
	if err != nil {
		c.fail("start", err.Error())
		return
	}
	defer closeFD(w)
	c.startedAt = time.Now() // the first moment at which it may run
	c.l.command(c.m.Start, c.m.Dir, [3]int{c.l.null, w, w}, c.m.ExecutorLog, time.Duration(c.m.StartTimeout), []*capture{k}, c.began)
}

// begin reads a container's outputs and feeds its input.
func (p *pump) begin(ours [3]int, once bool) {
	if ours[0] >= 0 {
		p.setStdin(ours[0], once)
	}
	for i := 1; i <= 2; i++ {
		if ours[i] >= 0 {
			p.follow(i-1, ours[i])
		}
	}
}

// claim records pid, as the executor reported it, as the container's first process, and begins to
// wait for its end. If the process has ended already, claim calls over at once.
func (c *container) claim(pid int) {
	c.pid = pid
	if s, ok := statOf(pid); ok && s.parent == unix.Getpid() {
		c.startTime = s.startTime
		c.pidfd, _ = unix.PidfdOpen(pid, 0)
		c.l.children[pid] = c.over
		return
	}
	if o, ok := c.l.orphans.take(pid); ok {
		c.over(o.death)
		return
	}
	c.watch() // the child of another process
}

// killStray kills a process of a failed creation, if it is a child of this process.
func (c *container) killStray(pid int) {
	if s, ok := statOf(pid); ok && s.parent == unix.Getpid() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func (c *container) began(failure string) {
	if failure != "" {
		if c.pidfd >= 0 {
			_ = unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0)
		}
		c.fail("start", failure)
		return
	}
	c.phase = running
	c.answer()
	if e := c.early; e != nil {
		c.over(*e)
	}
}

// fail ends a start with an error.
func (c *container) fail(step, text string) {
	c.phase, c.step, c.text = failed, step, text[:min(len(text), maxMessage/2)]
	for _, k := range c.outputs {
		k.close()
	}
	c.console.close()
	c.fifos.close()
	c.oom.close()
	p := c.pump
	p.enqueue(work{f: p.finish})
	c.answer()
	c.l.settle()
}

// answer sends the result of the start to all waiting clients.
func (c *container) answer() {
	for _, w := range c.waiters {
		c.answerTo(w)
	}
	c.waiters = nil
}

func (c *container) answerTo(w waiter) {
	m := wire.Message{Type: wire.Reply, Seq: w.seq, ID: c.m.ID}
	if c.phase == failed {
		m.Error, m.Step, m.Text = wire.NotStarted, c.step, c.text
		w.c.send(m, nil)
		return
	}
	m.FIFODir = c.m.FIFODir
	c.describe(&m)
	w.c.send(m, c.duplicates(&m))
}

// describe adds the state of the container to a message.
func (c *container) describe(m *wire.Message) {
	if c.phase == failed {
		m.Flags |= wire.FlagNotStarted
		m.Step, m.Text = c.step, c.text
		return
	}
	if c.phase >= running {
		m.Flags |= wire.FlagStarted
		m.PID, m.At, m.StartTime = uint64(c.pid), uint64(c.startedAt.UnixNano()), c.startTime
	}
	if c.shut {
		m.Flags |= wire.FlagStdinShut
	}
	m.Lost = c.lost
	if c.phase == ended && c.told {
		m.Flags |= wire.FlagExited
		m.EndAt, m.Code, m.Reason = uint64(c.endedAt.UnixNano()), uint64(uint32(c.code)), c.reason
		if c.killedByOOM {
			m.Flags |= wire.FlagOOM
		}
	}
}

// duplicates returns duplicates of the descriptors that a successor of this monitor needs, and sets
// the field Files of m.
func (c *container) duplicates(m *wire.Message) []int {
	if c.phase == failed || c.phase == ended {
		return nil
	}
	stdin, master := c.pump.duplicate()
	pidfd := dup(c.pidfd)
	var files []int
	for i, fd := range [...]int{stdin, pidfd, master} {
		if fd >= 0 {
			files = append(files, fd)
			m.Files |= 1 << i
		}
	}
	return files
}

// over handles the end of a container's first process.
func (c *container) over(d death) {
	switch {
	case c.phase == starting || c.phase == creating:
		c.early = &d
	case c.phase != running:
	case d.refused():
		c.finish(notExecutedCode, d.at, false, "NotExecuted")
	default:
		// When a child process is OOM-killed, many programs exit with a code of their own. The OOM
		// kill still counts as the reason, as with other runtimes.
		code, killed := exitCode(d.status), c.oom.killed()
		c.finish(code, d.at, killed && code != 0, "")
	}
}

// finish lets the pump read the rest of the outputs, and then reports the end.
func (c *container) finish(code int32, at time.Time, oom bool, reason string) {
	c.phase, c.code, c.killedByOOM, c.reason = ended, code, oom, reason
	c.endedAt = at
	if at.Before(c.startedAt) { // the clock was set back
		c.endedAt = c.startedAt
	}
	c.oom.close()
	p := c.pump
	tell := func() {
		if !c.told {
			c.told = true
			c.tell()
		}
	}
	late := c.l.after(drainTime, tell)
	p.enqueue(work{f: func() {
		p.drain(func() {
			lost := p.log.lost
			c.l.post(func() {
				late.stop()
				c.lost = max(c.lost, lost)
				tell()
			})
		})
	}})
}

// tell writes the exit record and reports the exit to the client.
func (c *container) tell() {
	m := wire.Message{Type: wire.Exited, Sandbox: c.m.Sandbox, ID: c.m.ID}
	c.describe(&m)
	record, err := wire.AppendExit(nil, m)
	if err == nil {
		err = replaceFile(c.m.ExitFile, record)
	}
	if err != nil {
		m.Text = "exit record " + c.m.ExitFile + ": " + err.Error()
	}
	if c.l.containers[c.m.ID] == c {
		c.l.event(m)
	}
	if c.pidfd >= 0 {
		_ = unix.Close(c.pidfd)
		c.pidfd = -1
	}
	p := c.pump
	p.enqueue(work{f: p.finish})
	c.l.settle()
}

func (c *container) stdinShut() {
	c.shut = true
	if c.phase == running {
		c.l.event(wire.Message{Type: wire.StdinShut, Sandbox: c.m.Sandbox, ID: c.m.ID})
	}
}

func (c *container) logLost(lost uint64, message string) {
	c.lost = max(c.lost, lost)
	c.l.event(wire.Message{Type: wire.LogLost, Sandbox: c.m.Sandbox, ID: c.m.ID, Lost: c.lost, Text: message})
}

// settle ends the monitor if SIGTERM was received and no container is busy.
func (l *loop) settle() {
	if l.ending && !l.busy() {
		l.over = true
	}
}

func (l *loop) terminate() {
	l.ending = true
	l.settle()
}

// busy reports whether a container is starting or running, or its exit has not been reported.
func (l *loop) busy() bool {
	for _, c := range l.containers {
		if c.phase < ended || c.phase == ended && !c.told {
			return true
		}
	}
	return false
}
