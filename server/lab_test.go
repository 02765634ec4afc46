package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/server"
	"github.com/nodewright/nodewright/server/auth"
)

// pods are a node's.
type pods []*v1.Pod

func (p pods) Pods() []*v1.Pod                                { return p }
func (p pods) RunningPods(context.Context) ([]*v1.Pod, error) { return p, nil }

// webPod has the containers c, which runs, init, and debugger.
func webPod() *v1.Pod {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-1"},
		Spec: v1.PodSpec{
			Containers:     []v1.Container{{Name: "c"}, {Name: "shell", TTY: true}},
			InitContainers: []v1.Container{{Name: "init"}},
			EphemeralContainers: []v1.EphemeralContainer{
				{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debugger"}},
			},
		},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", ContainerID: "containerd://id-c", State: running},
			{Name: "shell", ContainerID: "containerd://id-shell", State: running},
		}},
	}
}

// runtime is a fake of the instances and the runtime: it records the calls.
type runtime struct {
	url string
	err error

	mu      sync.Mutex
	calls   []any
	timeout time.Duration // of the last ExecSync
}

func (r *runtime) ContainerID(_ context.Context, pod types.UID, container string) (string, error) {
	if pod != "uid-1" || !slices.Contains([]string{"c", "shell", "init"}, container) {
		return "", errors.Join(errors.New("container "+container), server.ErrNotFound)
	}
	return "id-" + container, nil
}

func (r *runtime) SandboxID(_ context.Context, pod types.UID) (string, error) {
	return "sandbox-of-" + string(pod), nil
}

func (r *runtime) leads() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.url
}

func (r *runtime) leadTo(url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.url = url
}

func (r *runtime) called(req any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, req)
}

func (r *runtime) Exec(_ context.Context, q *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	r.called(q)
	return &runtimeapi.ExecResponse{Url: r.leads()}, r.err
}

func (r *runtime) Attach(_ context.Context, q *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	r.called(q)
	return &runtimeapi.AttachResponse{Url: r.leads()}, r.err
}

func (r *runtime) PortForward(_ context.Context, q *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	r.called(q)
	return &runtimeapi.PortForwardResponse{Url: r.leads()}, r.err
}

func (r *runtime) ExecSync(_ context.Context, id string, cmd []string, timeout time.Duration) ([]byte, []byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timeout = timeout
	return []byte(id + ":" + strings.Join(cmd, "|")), []byte("!"), r.err
}

func (r *runtime) CheckpointContainer(_ context.Context, q *runtimeapi.CheckpointContainerRequest) error {
	r.called(q)
	return r.err
}

func (r *runtime) Summary(_ context.Context, small bool) (*statsapi.Summary, error) {
	if r.err != nil {
		return nil, r.err
	}
	name := "all"
	if small {
		name = "cpu and memory"
	}
	return &statsapi.Summary{Node: statsapi.NodeStats{NodeName: name}}, nil
}

// logs has one file.
type logs struct {
	path string
	open func() bool
	err  error
}

func (l *logs) LogFile(context.Context, string) (string, bool, error) {
	return l.path, l.open != nil && l.open(), l.err
}

// level is a log's.
type level struct{ v int }

func (l *level) LogLevel() int { return l.v }
func (l *level) SetLogLevel(v int) error {
	if v > 10 {
		return errors.New("too much")
	}
	l.v = v
	return nil
}

// everyone lets all pass.
func everyone(c *server.Config) {
	c.Authenticator = auth.AuthenticatorFunc(func(*http.Request) (*auth.User, error) { return &auth.User{Name: "someone"}, nil })
	c.Authorizer = auth.AlwaysAllow()
}

// whole is a Config with all endpoints.
func whole(t *testing.T) server.Config {
	t.Helper()
	rt := &runtime{}
	c := server.Config{
		Node: "node-1", Pods: pods{webPod()}, Running: pods{webPod()},
		Instances: rt, Runtime: rt, Checkpoint: rt, Stats: rt, Logs: &logs{},
		Configz: func() any { return map[string]string{"kind": "KubeletConfiguration"} },
		Flags:   func() map[string]string { return map[string]string{"v": "2"} }, LogLevel: &level{v: 2},
		EnableDebuggingHandlers: true, EnableProfilingHandler: true, EnableSystemLogHandler: true,
		EnableDebugFlagsHandler: true,
		PodLogsDir:              t.TempDir(), SystemLogDir: t.TempDir(), CheckpointDir: "/var/lib/kubelet/checkpoints",
		TLS: &tls.Config{}, Port: 1,
	}
	everyone(&c)
	return c
}

func handler(t *testing.T, c server.Config) http.Handler {
	t.Helper()
	s, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

// node runs a Server on ports of its own.
type node struct {
	main, readOnly, healthz string
	client                  *http.Client
	stop                    func() error
}

func run(t *testing.T, c server.Config) *node {
	t.Helper()
	certs, err := server.NewCerts(server.CertsConfig{CertDir: t.TempDir(), Host: "node-1", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	return runWith(t, c, certs)
}

// runWith runs a Server with these certificates.
func runWith(t *testing.T, c server.Config, certs *server.Certs) *node {
	t.Helper()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	c.Main, c.ReadOnly, c.Healthz, c.TLS = listen(), listen(), listen(), certs.TLS()
	s, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	n := &node{
		main: c.Main.Addr().String(), readOnly: c.ReadOnly.Addr().String(), healthz: c.Healthz.Addr().String(),
		client: &http.Client{
			Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	n.stop = sync.OnceValue(func() error {
		n.client.CloseIdleConnections()
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := n.client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
