package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/nodewright/nodewright/agent/local"
)

func newExec(std stdio) *cobra.Command {
	var (
		c   clientFlags
		req local.ExecRequest
	)
	cmd := &cobra.Command{
		Use: "exec NAME [flags] -- COMMAND...", Short: "Run a command in a container",
		Example: "  agent exec web -- id\n  agent exec -it web -- sh\n  agent exec web -c side -i -- tar x < files.tar",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, command, err := execArguments(args, cmd.ArgsLenAtDash())
			if err != nil {
				return err
			}
			req.Command = command
			return c.exec(cmd.Context(), std, name, req)
		},
	}
	c.registerPods(cmd)
	cmd.Flags().StringVarP(&req.Container, "container", "c", "", "the `container`; by default the first")
	cmd.Flags().BoolVarP(&req.Stdin, "stdin", "i", false, "pass standard input to the command")
	cmd.Flags().BoolVarP(&req.TTY, "tty", "t", false, "allocate a terminal; standard input must be one")
	completeFlag(cmd, "container", c.from(c.containers))
	cmd.ValidArgsFunction = first(c.from(c.pods))
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; flags of the command go after --", flagError(cmd, err))
	})
	return cmd
}

// execArguments splits NAME -- COMMAND... into the name and the command. dash is the number of words
// before --, or -1 if there is no --. A user may leave out -- if no word of the command looks like a
// flag.
func execArguments(args []string, dash int) (name string, command []string, err error) {
	if dash < 0 {
		dash = min(1, len(args))
	}
	switch {
	case dash == 0:
		return "", nil, errPodName
	case dash > 1:
		return "", nil, fmt.Errorf("%q is before --; want one pod before --, and the command after it", args[1])
	case len(args) == 1:
		return "", nil, errors.New("which command? Give it after --")
	}
	return args[0], args[1:], nil
}

func (c *clientFlags) exec(ctx context.Context, std stdio, name string, req local.ExecRequest) error {
	if _, ok := std.in.(*os.File); ok && req.TTY && req.Stdin && !isTerminal(std.in) {
		fmt.Fprintln(std.err, "standard input is not a terminal: continuing without -t")
		req.TTY = false
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
	return stream(ctx, u, std, streams{what: "exec", stdin: req.Stdin, tty: req.TTY, raw: req.TTY})
}

// streams describes the streams that are connected to the process in the container.
type streams struct {
	what       string // the subcommand of agent, for errors
	stdin, tty bool   // the process has standard input, a terminal
	raw        bool   // the user's terminal is in raw mode
}

func (j *streams) interrupted() error {
	return fmt.Errorf("%s: interrupted; the command may still be running", j.what)
}

// protocolV4 is the version of the Kubernetes remote command protocol that every runtime supports.
// The client uses it over SPDY, since with WebSockets it could not close standard input.
const protocolV4 = "v4.channel.k8s.io"

// maxOutcome is the maximum size of the runtime's message about the end of a command, in bytes.
const maxOutcome = 1 << 20

// stream connects the command at rawURL to std until the command ends. If its exit code is not 0, the
// error is an exitError.
func stream(ctx context.Context, rawURL string, std stdio, j streams) error {
	conn, err := dial(ctx, rawURL, protocolV4)
	switch {
	case err != nil && ctx.Err() != nil:
		return j.interrupted()
	case err != nil:
		return fmt.Errorf("%s: %w", j.what, err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	err = join(conn, std, j)
	var code exitError
	if err != nil && ctx.Err() != nil && !errors.As(err, &code) {
		return j.interrupted()
	}
	return err
}

// dialTimeout limits the time for which dial waits for a runtime.
const dialTimeout = 10 * time.Second

// dial connects to a runtime. When ctx ends, it returns an error at once; the library does not
// support this.
func dial(ctx context.Context, rawURL, protocol string) (httpstream.Connection, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, fmt.Errorf("the runtime has not answered for %v", dialTimeout))
	defer cancel()
	var conn httpstream.Connection
	done := make(chan error, 1)
	go func() {
		c, err := connect(ctx, rawURL, protocol)
		conn = c
		done <- err
	}()
	select {
	case err := <-done:
		return conn, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func connect(ctx context.Context, rawURL, protocol string) (httpstream.Connection, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, rawURL, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(httpstream.HeaderProtocolVersion, protocol)
	var cfg spdy.RoundTripperConfig
	// URLs of the agent's own runtime have the form unix://SOCKET/METHOD/TOKEN.
	if req.URL.Scheme == "unix" {
		socket := path.Dir(path.Dir(req.URL.Path))
		cfg.UpgradeTransport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}
		req.URL.Scheme, req.URL.Host = "http", "localhost"
	}
	rt, err := spdy.NewRoundTripperWithConfig(cfg)
	if err != nil {
		return nil, err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the runtime answered %s", resp.Status)
	}
	return rt.NewConnection(resp)
}

// join copies the streams of a command until the command ends, and returns its outcome.
func join(conn httpstream.Connection, std stdio, j streams) error {
	open := map[string]httpstream.Stream{}
	for _, s := range []struct {
		kind  string
		there bool
	}{{"error", true}, {"stdin", j.stdin}, {"stdout", true}, {"stderr", !j.tty}, {"resize", j.tty}} {
		if !s.there {
			continue
		}
		var err error
		if open[s.kind], err = conn.CreateStream(http.Header{"Streamtype": {s.kind}}); err != nil {
			return fmt.Errorf("%s: stream %s: %w", j.what, s.kind, err)
		}
	}
	_ = open["error"].Close() // the client writes nothing to this stream
	if f, ok := std.in.(*os.File); ok && j.raw && term.IsTerminal(int(f.Fd())) {
		restore, err := terminal(f, open["resize"])
		if err != nil {
			return err
		}
		defer restore()
	}
	if in := open["stdin"]; in != nil {
		go func() {
			_, _ = io.Copy(in, std.in)
			_ = in.Close()
		}()
	}
	var all sync.WaitGroup
	failed := make(chan error, 2) // one for each stream
	for kind, to := range map[string]io.Writer{"stdout": std.out, "stderr": std.err} {
		if from := open[kind]; from != nil {
			all.Go(func() {
				// If the output cannot be written, close the connection: otherwise the
				// command would block on its output.
				if _, err := io.Copy(to, from); err != nil {
					failed <- err
					_ = conn.Close()
				}
			})
		}
	}
	status, err := io.ReadAll(io.LimitReader(open["error"], maxOutcome))
	all.Wait()
	switch {
	case len(failed) > 0:
		return fmt.Errorf("%s: %w", j.what, <-failed)
	case err != nil:
		return fmt.Errorf("%s: %w", j.what, err)
	case len(status) == 0:
		return fmt.Errorf("%s: the runtime did not report how the command ended", j.what)
	}
	return outcome(j.what, status)
}

// outcome returns the error of a command whose end the runtime has reported in data, a metav1.Status
// as JSON: nil for success, an exitError for an exit code, a codedError if the command could not be
// started.
func outcome(what string, data []byte) error {
	var st metav1.Status
	if err := json.Unmarshal(data, &st); err != nil {
		return fmt.Errorf("%s: %s", what, data)
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
	if _, why, ok := strings.Cut(st.Message, "unable to start container process: "); ok {
		code := 126
		if strings.Contains(why, "not found") || strings.Contains(why, "no such file or directory") {
			code = 127
		}
		return codedError{errors.New(strings.TrimSpace(why)), code}
	}
	return fmt.Errorf("%s: %s", what, st.Message)
}

// isTerminal reports whether a reader or a writer is a terminal.
func isTerminal(of any) bool {
	f, ok := of.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminal puts the terminal f into raw mode. It writes the terminal's size to resize, at once and
// after each change. restore ends both.
func terminal(f *os.File, resize io.Writer) (restore func(), err error) {
	old, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, unix.SIGWINCH)
	done := make(chan struct{})
	go func() {
		to := json.NewEncoder(resize)
		for {
			if w, h, err := term.GetSize(int(f.Fd())); err == nil {
				_ = to.Encode(struct{ Width, Height int }{w, h})
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
