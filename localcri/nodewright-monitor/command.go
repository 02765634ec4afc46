//go:build linux

package main

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// command is one run of the executor.
type command struct {
	l        *loop
	pid      int
	seq      uint64
	timer    *timer
	killed   string // why it was killed; "" if it was not
	captures []*capture
	log      string // the executor's log file; "" if there is none
	done     func(failure string)
}

// maxMessage limits the bytes that are kept of an executor's output.
const maxMessage = 4 << 10

// command runs the executor. It returns before done is called. done gets "", or the reason of the
// failure. captures are the outputs in which the executor reports errors.
func (l *loop) command(argv []string, dir string, files [3]int, log string, timeout time.Duration, captures []*capture, done func(string)) *command {
	if timeout <= 0 {
		timeout = time.Minute
	}
	c := &command{l: l, log: log, captures: captures, done: done}
	c.seq = l.orphans.begin()
	l.addGarbage(8 << 10)
	pid, err := l.fork(argv, dir, files)
	if err != nil {
		name := ""
		if len(argv) > 0 {
			name = argv[0]
		}
		l.post(func() { c.finish(name + ": " + err.Error()) })
		return c
	}
	c.pid = pid
	l.children[pid] = func(d death) { c.ended(d.status) }
	c.timer = l.after(timeout, func() { c.kill("killed: not done after " + timeout.String()) })
	return c
}

// kill kills the command and all processes that it has started.
func (c *command) kill(why string) {
	if c.pid != 0 {
		c.killed = why
		killTree(c.pid)
	}
}

func (c *command) ended(status unix.WaitStatus) {
	c.pid = 0
	failure := ""
	switch {
	case c.killed != "":
		failure = c.killed
	case !status.Exited() || status.ExitStatus() != 0:
		said := ""
		if c.log != "" {
			said = lastLine(readTail(c.log, maxMessage))
		}
		for i := len(c.captures) - 1; i >= 0 && said == ""; i-- {
			said = lastLine(c.captures[i].rest())
		}
		failure = said
		if failure == "" {
			failure = "executor ended with " + strconv.Itoa(int(exitCode(status)))
		}
	}
	c.finish(failure)
}

func (c *command) finish(failure string) {
	c.timer.stop()
	for _, k := range c.captures {
		k.rest() // so that the executor's output does not count as the container's
		k.close()
	}
	c.done(failure)
	c.l.orphans.end(c.seq)
}

// capture keeps the end of the data that is written to a descriptor.
type capture struct {
	l    *loop
	fd   int
	owns bool
	w    *watch
	tail []byte
}

// capturePipe makes a pipe for an executor's standard error.
func (l *loop) capturePipe() (*capture, int, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, err
	}
	_ = unix.SetNonblock(p[0], true)
	k, err := l.capture(p[0])
	if err != nil {
		_ = unix.Close(p[0])
		_ = unix.Close(p[1])
		return nil, -1, err
	}
	k.owns = true
	return k, p[1], nil
}

// capture reads a descriptor until it is closed.
func (l *loop) capture(fd int) (*capture, error) {
	k := &capture{l: l, fd: fd}
	var err error
	k.w, err = l.poll.add(fd, unix.EPOLLIN, func(uint32) {
		if !k.read(16) {
			l.poll.remove(k.w)
		}
	}, nil)
	return k, err
}

// read reads at most the given number of times. It returns false at the end of the stream.
func (k *capture) read(times int) bool {
	var b [1024]byte
	for range times {
		n, err := unix.Read(k.fd, b[:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return true
		case n <= 0:
			return false
		default:
			if k.tail = append(k.tail, b[:n]...); len(k.tail) > maxMessage {
				k.tail = append(k.tail[:0], k.tail[len(k.tail)-maxMessage:]...)
			}
		}
	}
	return true
}

// rest reads the available data, as much as a pipe can hold, and returns the end of all data.
func (k *capture) rest() []byte {
	k.read(1024)
	return k.tail
}

func (k *capture) close() {
	k.l.poll.remove(k.w)
	if k.owns && k.fd >= 0 {
		_ = unix.Close(k.fd)
	}
	k.fd = -1
}

// lastLine returns the last line that is not empty.
func lastLine(b []byte) string {
	b = bytes.TrimRight(b, " \t\r\n")
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		b = b[i+1:]
	}
	return strings.ToValidUTF8(string(b), "?")
}
