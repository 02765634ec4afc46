//go:build linux

package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/wire"
)

// process is a process that was executed in a container.
type process struct {
	l       *loop
	handle  uint64
	conn    *conn
	m       wire.Message
	command *command
	console *console
	pid     int
	seq     uint32 // sequence number of the request
	timer   *timer
	late    bool
	doomed  bool // killed before its PID was known
}

// maxProcesses limits the concurrent processes.
const maxProcesses = 256

// exec runs the executor for a process. files are the streams of the process (-1: none); exec
// closes them.
func (l *loop) exec(c *conn, m *wire.Message, files [3]int) {
	defer closeFiles(files[:])
	container := l.containers[m.ID]
	terminal := m.Flags&wire.FlagTerminal != 0
	switch {
	case container == nil:
		c.refuse(m, wire.Unknown, "")
		return
	case container.phase != running:
		c.refuse(m, wire.NotRunning, "")
		return
	case len(l.processes) >= maxProcesses:
		c.refuse(m, wire.Busy, "at most 256 processes are allowed at a time")
		return
	case len(m.Create) == 0 || !absolute(m.Create[0]) || !absolute(m.PIDFile):
		c.refuse(m, wire.Malformed, "Argv, PIDFile: absolute paths are needed")
		return
	case terminal && (!absolute(m.ConsoleSocket) || len(m.ConsoleSocket) > 107):
		c.refuse(m, wire.Malformed, "ConsoleSocket "+m.ConsoleSocket+": a terminal needs an absolute path of at most 107 bytes")
		return
	}
	l.handles++
	p := &process{l: l, handle: l.handles, conn: c, m: *m, seq: m.Seq}
	given := [3]int{l.null, l.null, l.null}
	for i, fd := range files {
		if fd >= 0 {
			given[i] = fd
		}
	}
	var captures []*capture
	if terminal {
		var err error
		if p.console, err = l.console(m.ConsoleSocket); err != nil {
			c.refuse(m, wire.Failed, err.Error())
			return
		}
		k, w, err := l.capturePipe()
		if err != nil {
			p.console.close()
			c.refuse(m, wire.Failed, err.Error())
			return
		}
		defer closeFD(w)
		captures = []*capture{k}
		given = [3]int{l.null, w, w}
	}
	l.processes[p.handle] = p
	_ = unix.Unlink(m.PIDFile)
	p.command = l.command(m.Create, m.Dir, given, m.ExecutorLog, time.Duration(m.StartTimeout), captures, p.began)
}

func (p *process) began(failure string) {
	defer p.console.close()
	p.command = nil
	p.pid = readPID(p.m.PIDFile)
	if failure == "" && p.pid == 0 {
		failure = "executor left no PID in " + p.m.PIDFile
	}
	if failure != "" {
		if s, ok := statOf(p.pid); ok && p.pid != 0 && s.parent == unix.Getpid() {
			killTree(p.pid)
		}
		delete(p.l.processes, p.handle)
		p.conn.send(wire.Message{Type: wire.Reply, Seq: p.seq, Error: wire.NotStarted, Step: "exec", Text: failure}, nil)
		return
	}
	reply := wire.Message{Type: wire.Reply, Seq: p.seq, Handle: p.handle, PID: uint64(p.pid)}
	var files []int
	if p.console != nil {
		if master, err := p.console.take(); err == nil {
			files, reply.Files = []int{master}, wire.FileMaster
		}
	}
	p.conn.send(reply, files) // only the client holds the master: closing it ends the terminal
	if s, ok := statOf(p.pid); ok && s.parent == unix.Getpid() {
		p.l.children[p.pid] = p.ended
		if p.doomed || p.conn.closed && p.m.Flags&wire.FlagKillWithClient != 0 {
			killTree(p.pid)
		}
		if p.m.Timeout > 0 {
			p.timer = p.l.after(time.Duration(p.m.Timeout), func() {
				p.late = true
				killTree(p.pid)
			})
		}
		return
	}
	if o, ok := p.l.orphans.take(p.pid); ok {
		p.ended(o.death)
		return
	}
	p.ended(death{status: unknownCode << 8, at: time.Now()})
}

func (p *process) ended(d death) {
	p.timer.stop()
	delete(p.l.processes, p.handle)
	m := wire.Message{Type: wire.ProcessDone, Sandbox: p.m.Sandbox, ID: p.m.ID, Handle: p.handle, Code: uint64(uint32(exitCode(d.status))), EndAt: uint64(d.at.UnixNano())}
	if p.late {
		m.Error = wire.TimedOut
	}
	p.conn.send(m, nil)
}

// kill kills the process and its children, or the executor that is starting it.
func (p *process) kill() {
	if p.command != nil {
		p.doomed = true
		p.command.kill("killed before it began")
		return
	}
	killTree(p.pid)
}
