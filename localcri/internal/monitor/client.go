//go:build linux

package monitor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/wire"
)

// Client is a connection to one monitor. Its methods may be called concurrently. After the
// connection has ended they return ErrGone.
type Client struct {
	cfg     Config
	sandbox string
	link    *link
	events  chan Event
	done    chan struct{}
	pid     int
	state   State

	mu        sync.Mutex
	seq       uint32                 // guarded by mu
	calls     map[uint32]func(reply) // guarded by mu; called once
	spares    map[string]spare       // guarded by mu; by container
	held      []int                  // guarded by mu: pipes of containers whose monitor is gone
	processes map[uint64]*Process    // guarded by mu
	attached  map[uint64]chan error  // guarded by mu
	backlog   []Event                // guarded by mu
	feeding   bool                   // guarded by mu: a goroutine is emptying backlog
	over      bool                   // guarded by mu
}

// reply is the answer to a call: a message with files, which belong to the receiver, or an error.
type reply struct {
	m     wire.Message
	files [wire.MaxFiles]*os.File
	err   error
}

func (r reply) close() {
	for _, f := range r.files {
		if f != nil {
			_ = f.Close()
		}
	}
}

const (
	eventQueue = 64
	maxBacklog = 4096             // unread events; with more the connection ends
	sendTime   = 10 * time.Second // the monitor's time to receive a message
)

// newClient makes a client of a link to a monitor, and asks the monitor for its state.
func newClient(ctx context.Context, cfg Config, sandbox string, l *link) (*Client, error) {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	c := &Client{
		cfg: cfg, sandbox: sandbox, link: l, events: make(chan Event, eventQueue), done: make(chan struct{}),
		calls: map[uint32]func(reply){}, spares: map[string]spare{}, processes: map[uint64]*Process{}, attached: map[uint64]chan error{},
	}
	go c.follow()
	m, err := c.call(ctx, wire.Message{Type: wire.Hello, Min: wire.MinVersion, Max: wire.Version}, nil, nil)
	if err == nil && m.Max < wire.MinVersion {
		err = ErrUnsupported
	}
	if err == nil && cfg.Place != nil {
		if err = cfg.Place(int(m.PID)); err != nil {
			err = fmt.Errorf("place monitor %d: %w", m.PID, err)
		}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	c.pid = int(m.PID)
	return c, nil
}

// call sends a request and waits for its answer. took, if not nil, is called with a
// successful answer before any later message is handled, even if the caller has given up.
func (c *Client) call(ctx context.Context, m wire.Message, files []*os.File, took func(reply, bool)) (wire.Message, error) {
	type result struct {
		m   wire.Message
		err error
	}
	answer := make(chan result, 1)
	var mu sync.Mutex
	waiting := true
	m.Sandbox = c.sandbox

	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return wire.Message{}, ErrGone
	}
	c.seq++
	m.Seq = c.seq
	c.calls[m.Seq] = func(r reply) {
		err := r.err
		if err == nil {
			err = replyError(r.m)
		}
		mu.Lock()
		defer mu.Unlock()
		if err == nil && took != nil {
			took(r, waiting)
		} else {
			r.close()
		}
		answer <- result{r.m, err}
	}
	c.mu.Unlock()

	if err := c.link.send(m, files); err != nil {
		c.mu.Lock()
		delete(c.calls, m.Seq)
		c.mu.Unlock()
		if errors.Is(err, wire.ErrTooLong) {
			return wire.Message{}, err
		}
		c.end()
		return wire.Message{}, fmt.Errorf("%w: %w", ErrGone, err)
	}
	select {
	case r := <-answer:
		return r.m, r.err
	case <-ctx.Done():
	}
	mu.Lock()
	waiting = false
	mu.Unlock()
	select {
	case r := <-answer: // the answer arrived at the same time
		return r.m, r.err
	default:
		return wire.Message{}, ctx.Err()
	}
}

func replyError(m wire.Message) error {
	var err error
	switch m.Error {
	case wire.OK:
		return nil
	case wire.NotStarted:
		return &StartError{Step: m.Step, Message: executorMessage(m.Text)}
	case wire.Unsupported:
		err = ErrUnsupported
	case wire.Unknown:
		err = ErrUnknown
	case wire.Exists:
		err = ErrExists
	case wire.NotRunning:
		err = ErrNotRunning
	case wire.Running:
		err = ErrRunning
	case wire.Busy:
		err = ErrBusy
	case wire.Cut:
		err = ErrCut
	case wire.TimedOut:
		err = ErrTimeout
	default:
		if m.Text == "" {
			return fmt.Errorf("monitor refused with code %d", m.Error)
		}
		return errors.New(m.Text)
	}
	if m.Text != "" {
		err = fmt.Errorf("%w: %s", err, m.Text)
	}
	return err
}

// follow handles the messages of the monitor until the connection ends.
func (c *Client) follow() {
	for {
		m, files, err := c.link.receive()
		if err != nil {
			c.end()
			return
		}
		r := reply{m: m}
		next := 0
		for i := range r.files {
			if m.Files&(1<<i) != 0 && next < len(files) {
				r.files[i], next = files[next], next+1
			}
		}
		for _, f := range files[next:] {
			_ = f.Close()
		}
		c.handle(r)
	}
}

// handle handles a message of the monitor. It owns the files of r.
func (c *Client) handle(r reply) {
	switch m := r.m; m.Type {
	case wire.Kept:
		if !c.isCall(m.Seq) || m.Error != wire.OK {
			r.close()
			return
		}
		c.putSpare(m.ID, spareOf(r))
		c.state.Containers = append(c.state.Containers, keptOf(m)) // read after the Reply has arrived
		return
	case wire.Reply:
		c.mu.Lock()
		f := c.calls[m.Seq]
		delete(c.calls, m.Seq)
		c.mu.Unlock()
		if f != nil {
			f(r)
			return
		}
	case wire.Exited:
		if m.Text != "" {
			c.cfg.Log.Error("failed to write exit record", zap.String("container", m.ID), zap.String("reason", m.Text))
		}
		c.dropSpare(m.ID)
		c.tell(Event{Exit: exitOf(m)})
	case wire.LogLost:
		c.tell(Event{Lost: &Lost{ID: m.ID, Bytes: m.Lost, Message: m.Text}})
	case wire.StdinShut:
		c.mu.Lock()
		if s, ok := c.spares[m.ID]; ok {
			Files{Stdin: s.files.Stdin}.Close() // else the container would not see the end of its standard input
			s.files.Stdin = nil
			c.spares[m.ID] = s
		}
		c.mu.Unlock()
	case wire.ProcessDone:
		c.mu.Lock()
		p := c.processes[m.Handle]
		delete(c.processes, m.Handle)
		c.mu.Unlock()
		if p != nil {
			p.finish(int32(uint32(m.Code)), replyError(m))
		}
	case wire.AttachDone:
		c.mu.Lock()
		done := c.attached[m.Handle]
		delete(c.attached, m.Handle)
		c.mu.Unlock()
		if done != nil {
			done <- replyError(m)
		}
	}
	r.close()
}

func (c *Client) isCall(seq uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[seq] != nil
}

// tell queues an event. The queue is limited: if the user of c does not read the events, the
// connection ends.
func (c *Client) tell(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.backlog = append(c.backlog, e); len(c.backlog) > maxBacklog {
		c.link.close()
		return
	}
	if !c.feeding {
		c.feeding = true
		go c.feed()
	}
}

func (c *Client) feed() {
	for {
		c.mu.Lock()
		if len(c.backlog) == 0 {
			c.backlog, c.feeding = nil, false
			c.mu.Unlock()
			return
		}
		e := c.backlog[0]
		c.backlog = c.backlog[1:]
		c.mu.Unlock()
		select {
		case c.events <- e:
		case <-c.done:
			return
		}
	}
}

// end ends the connection. It keeps the files of the containers, for Files.
func (c *Client) end() {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.over = true
	calls, processes, attached := c.calls, c.processes, c.attached
	c.calls, c.processes, c.attached = nil, nil, nil
	c.holdPipes()
	c.mu.Unlock()
	c.link.close()
	for _, f := range calls {
		f(reply{err: ErrGone})
	}
	for _, p := range processes {
		p.finish(0, ErrGone)
	}
	for _, done := range attached {
		done <- ErrGone
	}
	close(c.done)
}

// Start starts a container. If ctx ends, Start returns, but the monitor goes on. A second Start
// with the same ID waits for the first one and returns its result; it ignores the other fields.
// The error is a *StartError if the container did not start.
func (c *Client) Start(ctx context.Context, container Container) (Started, error) {
	m, err := c.call(ctx, startMessage(container), nil, func(r reply, _ bool) { c.putSpare(container.ID, spareOf(r)) })
	if err != nil {
		return Started{}, err
	}
	return *startedOf(m), nil
}

// Adopt makes this monitor take over a container that its dead predecessor had started. The
// caller still has to close the files. There may be none; then the terminal, standard input
// and, on kernels before 6.15, the exit code are lost. If the log cannot be opened, this is
// logged and not an error: ReopenLog can open it later.
func (c *Client) Adopt(ctx context.Context, k Kept, files Files) error {
	m := adoptMessage(k)
	var sent []*os.File
	for i, f := range [...]*os.File{files.Stdin, files.Pidfd, files.Master} {
		if f != nil {
			sent = append(sent, f)
			m.Files |= 1 << i
		}
	}
	runs := k.Exit == nil && k.StartError == nil
	answer, err := c.call(ctx, m, sent, func(r reply, _ bool) {
		r.close()
		if runs {
			c.putSpare(k.Container.ID, spare{files: files.duplicate(), dir: k.Container.FIFODir})
		}
	})
	if err == nil && answer.Text != "" {
		c.cfg.Log.Error("failed to open log of adopted container", zap.String("container", k.Container.ID), zap.String("reason", answer.Text))
	}
	return err
}

// Resize sets the size of a container's terminal, in characters.
func (c *Client) Resize(ctx context.Context, id string, width, height uint16) error {
	_, err := c.call(ctx, wire.Message{Type: wire.Resize, ID: id, Width: uint64(width), Height: uint64(height)}, nil, nil)
	return err
}

// ReopenLog continues the log in the file at path, which is created if it is missing. If the
// file cannot be opened, the log continues in the old file.
func (c *Client) ReopenLog(ctx context.Context, id, path string) error {
	_, err := c.call(ctx, wire.Message{Type: wire.Reopen, ID: id, Log: path}, nil, nil)
	return err
}

// Keep replaces the data that the monitor stores about a container for the caller, at
// most 32 KiB.
func (c *Client) Keep(ctx context.Context, id string, record []byte) error {
	if len(record) > wire.MaxRecord {
		return fmt.Errorf("record of %d bytes: 32 KiB are allowed", len(record))
	}
	_, err := c.call(ctx, wire.Message{Type: wire.Keep, ID: id, Record: record}, nil, nil)
	return err
}

// Forget makes the monitor drop a container that has ended or did not start, with its state. Its
// exit record stays. Later output of its remaining processes is not logged. While the container
// runs, the error is ErrRunning.
func (c *Client) Forget(ctx context.Context, id string) error {
	_, err := c.call(ctx, wire.Message{Type: wire.Forget, ID: id}, nil, nil)
	if err == nil {
		c.dropSpare(id)
	}
	return err
}

// Quit ends the monitor and removes its directory. The error is ErrRunning while containers run.
func (c *Client) Quit(ctx context.Context) error {
	if _, err := c.call(ctx, wire.Message{Type: wire.Quit}, nil, nil); err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return removeDir(c.cfg, c.sandbox)
}

// Close ends the connection and closes the files of the containers. The monitor continues.
func (c *Client) Close() {
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.spares {
		s.files.Close()
		delete(c.spares, id)
	}
	for _, fd := range c.held {
		_ = unix.Close(fd)
	}
	c.held = nil
}

// State returns the state of the monitor at the time of this connection.
func (c *Client) State() State { return c.state }

// Events returns the channel of the monitor's events. Only the newest client gets them. It must
// be read until Done: with more than 4096 unread events the connection ends.
func (c *Client) Events() <-chan Event { return c.events }

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// PID returns the PID of the monitor.
func (c *Client) PID() int { return c.pid }
