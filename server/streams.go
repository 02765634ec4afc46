package server

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/server/internal/stream"
)

// streamRoutes returns the streaming endpoints, which clients end. Without a Runtime there are
// none.
func (s *Server) streamRoutes() []route {
	if s.cfg.Runtime == nil {
		return nil
	}
	var rs []route
	add := func(base string, methods []string, serve http.HandlerFunc, shapes ...string) {
		for _, shape := range shapes {
			rs = append(rs, route{pattern: base + shape, methods: methods, stream: true, serve: serve})
		}
	}
	const container, withUID = "/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"
	add("/exec", getPost, s.exec, container, withUID)
	add("/attach", getPost, s.attach, container, withUID)
	add("/portForward", getPost, s.portForward, "/{namespace}/{pod}", "/{namespace}/{pod}/{uid}")
	for _, shape := range []string{container, withUID} {
		rs = append(rs, route{pattern: "/run" + shape, methods: post, stream: true, body: true, serve: s.run})
	}
	return rs
}

// streamsOf parses the requested streams of a remote command. A terminal has one stream for both
// outputs.
func streamsOf(q url.Values) (stream.Streams, error) {
	// As in the kubelet, anything but "1" means no.
	on := func(name string) bool { return q.Get(name) == "1" }
	st := stream.Streams{Stdin: on("input"), Stdout: on("output"), Stderr: on("error"), TTY: on("tty")}
	// A terminal merges both outputs: a client would wait for a second one forever.
	if st.TTY {
		st.Stderr = false
	}
	if !st.Stdin && !st.Stdout && !st.Stderr {
		return st, errors.New("you must specify at least 1 of stdin, stdout, stderr")
	}
	return st, nil
}

// portsOf parses the ports to forward over a WebSocket of the older kind; with SPDY, the port is
// in the headers of each stream. A value may have several ports, separated by commas.
func portsOf(q url.Values) ([]int32, error) {
	var out []int32
	for _, list := range q["port"] {
		for p := range strings.SplitSeq(list, ",") {
			n, err := strconv.ParseUint(p, 10, 16)
			if err != nil || n == 0 {
				return nil, errors.New(`query parameter "port" has ` + strconv.Quote(p) + "; want numbers from 1 to 65535")
			}
			out = append(out, int32(n)) //nolint:gosec // 16 bits
		}
	}
	if len(out) == 0 {
		return nil, errors.New(`query parameter "port" is required`)
	}
	return out, nil
}

// podOf returns the pod of a path. If there is none, it answers the request and returns nil.
func (s *Server) podOf(w http.ResponseWriter, r *http.Request) *v1.Pod {
	uid := types.UID(r.PathValue("uid"))
	p := s.pod(r.PathValue("namespace"), r.PathValue("pod"), uid)
	if p == nil {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return nil
	}
	// A newer pod with the same name is not the requested one.
	if uid != "" && p.UID != uid {
		http.Error(w, "pod "+p.Namespace+"/"+p.Name+" with UID "+string(uid)+" does not run here", http.StatusNotFound)
		return nil
	}
	return p
}

// containerOf returns the ID of the running container in the path. If there is none, it answers
// the request.
func (s *Server) containerOf(w http.ResponseWriter, r *http.Request, p *v1.Pod) (id string, ok bool) {
	id, err := s.cfg.Instances.ContainerID(r.Context(), p.UID, r.PathValue("container"))
	if err != nil {
		fail(w, err)
		return "", false
	}
	return id, true
}

// fail answers with the status for a runtime's error. 429 asks clients to try again: the
// runtime's limit is temporary.
func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch c := status.Code(unwrapStatus(err)); {
	case errors.Is(err, ErrNotFound), c == codes.NotFound:
		code = http.StatusNotFound
	case c == codes.ResourceExhausted:
		w.Header().Set("Retry-After", "1")
		code = http.StatusTooManyRequests
	}
	http.Error(w, err.Error(), code)
}

// unwrapStatus returns the gRPC status inside an error, so that clients get its code. status.Code
// finds it only in the outermost error.
func unwrapStatus(err error) error {
	var st interface{ GRPCStatus() *status.Status }
	if errors.As(err, &st) {
		return st.GRPCStatus().Err()
	}
	return err
}

// exec runs a command in a container, with streams.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	st, err := streamsOf(q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := s.podOf(w, r)
	if p == nil {
		return
	}
	id, ok := s.containerOf(w, r, p)
	if !ok {
		return
	}
	// The runtime gets the command before the client's upgrade is answered, so that a mistake is
	// still an HTTP error.
	s.proxy(w, r, stream.Request{Kind: stream.Exec, Streams: st}, func(ctx context.Context) (string, error) {
		resp, err := s.cfg.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: id, Cmd: q["command"], Tty: st.TTY, Stdin: st.Stdin, Stdout: st.Stdout, Stderr: st.Stderr,
		})
		return resp.GetUrl(), err
	})
}

// attach connects to the streams of a container's first process.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	st, err := streamsOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := s.podOf(w, r)
	if p == nil {
		return
	}
	tty, ok := terminalOf(p, r.PathValue("container"))
	if !ok {
		http.Error(w, "container "+r.PathValue("container")+" is not in pod "+p.Namespace+"/"+p.Name, http.StatusNotFound)
		return
	}
	id, ok := s.containerOf(w, r, p)
	if !ok {
		return
	}
	// Whether there is a terminal depends on the process, not on the client.
	st.TTY = tty
	st.Stderr = st.Stderr && !tty
	s.proxy(w, r, stream.Request{Kind: stream.Attach, Streams: st}, func(ctx context.Context) (string, error) {
		resp, err := s.cfg.Runtime.Attach(ctx, &runtimeapi.AttachRequest{
			ContainerId: id, Tty: st.TTY, Stdin: st.Stdin, Stdout: st.Stdout, Stderr: st.Stderr,
		})
		return resp.GetUrl(), err
	})
}

// portForward forwards connections to ports within a pod.
func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	q := stream.Request{Kind: stream.PortForward}
	// Only the oldest protocol names the ports in the query.
	var ports []int32
	if stream.IsWebSocket(r) && (s.cfg.DisableWebSocketTranslation || !stream.Translated(r, q.Kind)) {
		var err error
		if ports, err = portsOf(r.URL.Query()); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	p := s.podOf(w, r)
	if p == nil {
		return
	}
	id, err := s.cfg.Instances.SandboxID(r.Context(), p.UID)
	if err != nil {
		fail(w, err)
		return
	}
	s.proxy(w, r, q, func(ctx context.Context) (string, error) {
		// Ports are nil if each stream names its own.
		resp, err := s.cfg.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: id, Port: ports})
		return resp.GetUrl(), err
	})
}

// proxy gets a URL from the runtime and forwards the client's upgrade to it. It blocks until the
// stream has ended. The client is not redirected, since it could not reach the runtime.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, q stream.Request, ask func(context.Context) (string, error)) {
	// Checked before the runtime is called: an unused URL would exist there until it expires.
	if !stream.IsUpgrade(r) {
		http.Error(w, "Upgrade request required", http.StatusBadRequest)
		return
	}
	// The deadline applies only to this call, not to the stream.
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	target, err := ask(ctx)
	cancel()
	if err != nil {
		fail(w, err)
		return
	}
	q.Target, q.Translate = target, !s.cfg.DisableWebSocketTranslation
	if q.Translate && stream.Translated(r, q.Kind) {
		s.met.webSockets.WithLabelValues(string(q.Kind)).Inc()
	}
	// Logged at debug level, since most streams end because the client disconnected.
	if err := stream.Proxy(r.Context(), w, r, q); err != nil {
		s.cfg.Log.Debug("stream of a client ended", zap.String("kind", string(q.Kind)), zap.Error(err))
	}
}

// run runs a command to its end and answers with its complete output. The route counts as a
// stream, since in the kubelet the command has no time limit.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	// Like the kubelet, split at blanks, without support for quotes.
	cmd := strings.Fields(r.FormValue("cmd"))
	if len(cmd) == 0 {
		http.Error(w, `parameter "cmd" is required`, http.StatusBadRequest)
		return
	}
	p := s.podOf(w, r)
	if p == nil {
		return
	}
	id, ok := s.containerOf(w, r, p)
	if !ok {
		return
	}
	stdout, stderr, err := s.cfg.Runtime.ExecSync(r.Context(), id, cmd, 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	// Both outputs together, as in the kubelet.
	_, _ = w.Write(slices.Concat(stdout, stderr)) // an error means that the client has disconnected
}
