package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/local"
)

func execCommand(ctx context.Context, std stdio, args []string) error {
	c, name, req, err := parseExec(std, args)
	if err != nil {
		return err
	}
	cl := c.client()
	pod, err := c.findOrExplain(ctx, std, cl, name)
	if err != nil {
		return err
	}
	u, err := cl.Exec(ctx, pod.Namespace, pod.Name, req)
	if err != nil {
		return err
	}
	return stream(ctx, u, std, req)
}

// parseExec reads NAME [flags] -- COMMAND... The dashes may be left out if no
// word of the command looks like a flag.
func parseExec(std stdio, args []string) (c clientFlags, name string, req local.ExecRequest, err error) {
	fs := flag.NewFlagSet("agent exec", flag.ContinueOnError)
	c.register(fs)
	fs.StringVar(&req.Container, "c", "", "the `container`; else the first")
	fs.BoolVar(&req.Stdin, "i", false, "pass standard input on")
	fs.BoolVar(&req.TTY, "t", false, "standard input is a terminal")
	both := fs.Bool("it", false, "-i and -t")
	for _, n := range [][2]string{{"c", "container"}, {"i", "stdin"}, {"t", "tty"}, {"it", "ti"}} {
		also(fs, n[0], n[1])
	}
	names, command, err := parse(fs, std, args)
	dashes := slices.Contains(args, "--")
	switch {
	case err != nil && !dashes && !errors.Is(err, flag.ErrHelp):
		return c, "", req, fmt.Errorf("%w; flags of the command go after --", err)
	case err != nil:
		return c, "", req, err
	case len(names) == 0:
		return c, "", req, errPodName
	case !dashes:
		names, command = names[:1], names[1:]
	case len(names) > 1:
		return c, "", req, fmt.Errorf("%q stands before --; want one pod there, and the command behind", names[1])
	}
	if len(command) == 0 {
		return c, "", req, errors.New("which command? Give it after --")
	}
	req.Command = command
	req.Stdin, req.TTY = req.Stdin || *both, req.TTY || *both
	return c, names[0], req, nil
}

// The channels of the Kubernetes remote command protocol over WebSocket: the
// first byte of every message (KEP-4006).
const (
	channelStdin  = 0
	channelStdout = 1
	channelStderr = 2
	channelError  = 3
	channelResize = 4
	channelClose  = 255 // v5 only: names the channel that ends
)

const protocolV5 = "v5.channel.k8s.io"

var errInterrupted = errors.New("exec: interrupted; the command may go on")

// stream joins the command behind rawURL to std until it ends. A command that
// ends with another code than 0 is an exitError.
func stream(ctx context.Context, rawURL string, std stdio, req local.ExecRequest) error {
	u, err := url.Parse(rawURL)
	if err != nil {
		return fmt.Errorf("exec URL: %w", err)
	}
	switch u.Scheme {
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	}
	dialer := websocket.Dialer{
		HandshakeTimeout: 10 * time.Second,
		Subprotocols:     []string{protocolV5, "v4.channel.k8s.io"},
	}
	conn, resp, err := dialer.DialContext(ctx, u.String(), nil)
	if resp != nil {
		defer func() { _ = resp.Body.Close() }()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return errInterrupted
	case err != nil && resp != nil:
		return fmt.Errorf("exec: the runtime answered %s", resp.Status)
	case err != nil:
		return fmt.Errorf("exec: %w", err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	s := &session{conn: conn}
	if req.TTY {
		if f, ok := std.in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			restore, err := s.terminal(f)
			if err != nil {
				return err
			}
			defer restore()
		}
	}
	if req.Stdin {
		go s.sendInput(std.in)
	}
	err = s.receive(std)
	var code exitError
	if err != nil && ctx.Err() != nil && !errors.As(err, &code) {
		return errInterrupted
	}
	return err
}

// session is one WebSocket that several goroutines write to.
type session struct {
	conn *websocket.Conn
	mu   sync.Mutex
}

func (s *session) send(channel byte, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, data...))
}

func (s *session) sendInput(in io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 && s.send(channelStdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			if s.conn.Subprotocol() == protocolV5 {
				_ = s.send(channelClose, []byte{channelStdin})
			}
			return
		}
	}
}

func (s *session) receive(std stdio) error {
	for {
		_, msg, err := s.conn.ReadMessage()
		if err != nil {
			if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				return errors.New("exec: the runtime did not tell how the command ended")
			}
			return fmt.Errorf("exec: %w", err)
		}
		if len(msg) == 0 {
			continue
		}
		switch data := msg[1:]; msg[0] {
		case channelStdout:
			_, err = std.out.Write(data)
		case channelStderr:
			_, err = std.err.Write(data)
		case channelError:
			return outcome(data)
		}
		if err != nil {
			return err
		}
	}
}

// outcome reads how a command ended: a metav1.Status as JSON.
func outcome(data []byte) error {
	var st metav1.Status
	if err := json.Unmarshal(data, &st); err != nil {
		return fmt.Errorf("exec: %s", data)
	}
	if st.Status == metav1.StatusSuccess {
		return nil
	}
	if st.Details != nil {
		for _, c := range st.Details.Causes {
			if c.Type != "ExitCode" {
				continue
			}
			if code, err := strconv.Atoi(c.Message); err == nil {
				return exitError(code)
			}
		}
	}
	return fmt.Errorf("exec: %s", st.Message)
}

// terminal puts f into raw mode and keeps the far side told of its size. The
// function returned undoes both.
func (s *session) terminal(f *os.File) (restore func(), err error) {
	old, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, unix.SIGWINCH)
	done := make(chan struct{})
	go func() {
		for {
			if w, h, err := term.GetSize(int(f.Fd())); err == nil {
				b, _ := json.Marshal(struct{ Width, Height int }{w, h})
				_ = s.send(channelResize, b)
			}
			select {
			case <-sizes:
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(sizes)
		close(done)
		_ = term.Restore(int(f.Fd()), old)
	}, nil
}
