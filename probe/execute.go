package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodewright/nodewright/internal/outputlimit"
	"github.com/nodewright/nodewright/probe/check"
)

// target has the facts of a container that a check uses. They are copied under the lock, so that
// the check runs without it.
type target struct {
	probe *v1.Probe
	spec  *v1.Container
	id    string
	ip    string
}

// check makes one attempt of the probe p, with the current version of the pod. It does nothing if
// the probe was stopped: p.turn then differs from turn.
func (m *Manager) check(ctx context.Context, p *prober, turn uint64) (check.Outcome, string, error) {
	m.mu.Lock()
	if p.turn != turn {
		m.mu.Unlock()
		// The round began before a stop that it did not see; its outcome will be
		// dropped.
		return check.Unknown, "", context.Canceled
	}
	t := target{probe: p.spec, spec: p.c.spec, id: p.c.id, ip: p.c.pod.ip}
	m.mu.Unlock()
	switch {
	case t.probe.Exec != nil:
		return m.runtime.check(ctx, t)
	// After exec, which goes through the runtime and not through a network.
	case m.cfg.Network != nil:
		return m.cfg.Network(ctx, t.probe)
	case t.probe.HTTPGet != nil:
		h, err := m.http(t)
		if err != nil {
			return check.Unknown, "", err
		}
		return h.Check(ctx)
	case t.probe.TCPSocket != nil:
		a := t.probe.TCPSocket
		host, port, err := t.address(a.Host, a.Port)
		if err != nil {
			return check.Unknown, "", err
		}
		return check.TCP{Host: host, Port: port, Graceful: m.cfg.Graceful}.Check(ctx)
	case t.probe.GRPC != nil:
		return m.grpc(ctx, t)
	default:
		return check.Failure, "", fmt.Errorf("container %q: the probe has none of exec, httpGet, tcpSocket and grpc", t.spec.Name)
	}
}

// http returns the check for an HTTP probe. It returns an error if the probe is invalid; it does
// not contact the server.
func (m *Manager) http(t target) (check.HTTP, error) {
	g := t.probe.HTTPGet
	host, port, err := t.address(g.Host, g.Port)
	if err != nil {
		return check.HTTP{}, err
	}
	scheme := strings.ToLower(string(g.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	h := http.Header{}
	// Repeated names add up.
	for _, line := range g.HTTPHeaders {
		h.Add(line.Name, line.Value)
	}
	return check.HTTP{URL: check.URL(scheme, host, port, g.Path), Header: check.Header(h, m.cfg.UserAgent), Client: m.client}, nil
}

// grpc makes a gRPC check with Config.GRPC. Programs without gRPC probes do not link gRPC.
func (m *Manager) grpc(ctx context.Context, t target) (check.Outcome, string, error) {
	if m.cfg.GRPC == nil {
		return check.Unknown, "", errors.New("this agent does not support grpc probes")
	}
	g := t.probe.GRPC
	host, port, err := t.address("", intstr.FromInt32(g.Port))
	if err != nil {
		return check.Unknown, "", err
	}
	service := ""
	if g.Service != nil {
		service = *g.Service
	}
	return m.cfg.GRPC(ctx, net.JoinHostPort(host, strconv.Itoa(port)), service)
}

// address returns the host and port of a check. The host defaults to the pod's address.
func (t target) address(host string, port intstr.IntOrString) (string, int, error) {
	if host == "" {
		host = t.ip
	}
	if host == "" {
		return "", 0, errors.New("the pod has no address yet")
	}
	n, err := resolvePort(port, t.spec)
	return host, n, err
}

// resolvePort finds a port by number, or by its name in the container.
func resolvePort(p intstr.IntOrString, c *v1.Container) (int, error) {
	n := 0
	switch p.Type {
	case intstr.Int:
		n = int(p.IntVal)
	case intstr.String:
		// A name that is not a number gives 0, which is refused below. Ports of
		// that name are preferred.
		n, _ = strconv.Atoi(p.StrVal)
		for i := range c.Ports {
			if c.Ports[i].Name == p.StrVal {
				n = int(c.Ports[i].ContainerPort)
				break
			}
		}
	default:
		return 0, fmt.Errorf("port is of kind %d; want a number or a string", p.Type)
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("port %q: want a number from 1 to 65535 or the name of a port of container %q", p.String(), c.Name)
	}
	return n, nil
}

// runtime makes exec checks, and stores the time of the runtime's last answer.
type runtime struct {
	exec    Execer
	answers func(context.Context) error
	life    context.Context // context of the Manager's Run

	// mu guards answered, the time of the runtime's last answer about any command.
	mu       sync.Mutex
	answered time.Time
}

// check runs the command of an exec probe. If there is no answer, check decides whether the command
// hangs, which is a failure of the container, or the runtime hangs, which is an error.
func (r *runtime) check(ctx context.Context, t target) (check.Outcome, string, error) {
	if r.exec == nil {
		return check.Unknown, "", errors.New("this agent does not support exec probes")
	}
	start := time.Now()
	e := check.Exec{
		Command: expandAll(t.probe.Exec.Command, t.spec.Env), Slack: execSlack,
		Run: func(ctx context.Context, command []string, timeout time.Duration) ([]byte, error) {
			stdout, stderr, err := r.exec.ExecSync(outputlimit.With(ctx, check.MaxOutput), t.id, command, timeout)
			if ctx.Err() == nil {
				// An error is an answer too, but one at the end of the context may
				// be our own.
				r.noteAnswer()
			}
			return join(stdout, stderr), err
		},
	}
	o, out, err := e.Check(ctx)
	if errors.Is(err, check.ErrNoAnswer) && (r.answeredSince(start) || r.asked()) {
		// The runtime answers otherwise, so that this command hangs, or a process
		// that it started: containerd waits for all processes that have the
		// command's output open.
		return check.Failure, fmt.Sprintf("command timed out: %v", err), nil
	}
	return o, out, err
}

// answerTimeout is the timeout of Config.Answers.
const answerTimeout = time.Second

// asked calls Config.Answers after a check that got no answer, and reports whether the runtime
// answered this call.
func (r *runtime) asked() bool {
	if r.answers == nil {
		return false
	}
	// The check's context is over at this point.
	ctx, cancel := context.WithTimeout(r.life, answerTimeout)
	defer cancel()
	return r.answers(ctx) == nil
}

// join returns a copy of the used part of a command's output, so that the rest,
// possibly megabytes, is freed.
func join(stdout, stderr []byte) []byte {
	stdout = stdout[:min(len(stdout), check.MaxOutput)]
	stderr = stderr[:min(len(stderr), check.MaxOutput-len(stdout))]
	return slices.Concat(stdout, stderr)
}

// noteAnswer records that the runtime has answered now.
func (r *runtime) noteAnswer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = time.Now()
}

// answeredSince reports whether the runtime has answered after t.
func (r *runtime) answeredSince(t time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answered.After(t)
}
