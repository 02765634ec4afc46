package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/statusmgr"
)

// options are those of a node with nothing but a runtime and a directory of
// manifests.
func options(t *testing.T, more string, args ...string) Options {
	t.Helper()
	// A socket's path has to be short.
	root, err := os.MkdirTemp("", "nwna")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	c, _, err := load(t, configHead+"failCgroupV1: false\nfailSwapOn: false\ncgroupsPerQOS: false\nhealthzPort: 0\nresolvConf: ''\nevictionHard: {}\npodLogsDir: "+t.TempDir()+"\n"+more,
		append([]string{"--root-dir", root, "--pod-manifest-path", t.TempDir(), "--hostname-override", "n"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	rt := critest.New()
	return Options{Config: c, Runtime: rt, Images: rt}
}

func TestOptions(t *testing.T) {
	good := options(t, "")
	for want, change := range map[string]func(*Options){
		"Options.Config is required":    func(o *Options) { o.Config = nil },
		"Options.Runtime":               func(o *Options) { o.Images = nil },
		"Options.Join is nil":           func(o *Options) { o.Config = o.Config.DeepCopy(); o.Config.Kubeconfig = "/k" },
		"Sources is empty":              func(o *Options) { o.Config = o.Config.DeepCopy(); o.Config.StaticPodPath = "" },
		"no cluster":                    func(o *Options) { o.Config = o.Config.DeepCopy(); o.Config.Kubeconfig = "/k"; o.Join = noCluster },
		"a service that cannot be made": func(o *Options) { o.Services = []Service{badService} },
	} {
		o := good
		change(&o)
		if _, err := New(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	good.Join = noCluster // nobody asks it
	if _, err := New(t.Context(), good); err != nil {
		t.Error(err)
	}
}

func noCluster(*Builder) (*Cluster, error) { return nil, errors.New("no cluster") }

func badService(*Node) (string, func(context.Context) error, error) {
	return "", nil, errors.New("a service that cannot be made")
}

// A node at rest has its lock, and has left nothing else behind.
func TestNewLeavesNoTrace(t *testing.T) {
	o := options(t, "")
	o.Parts, o.Services = Standard(), StandardServices()
	n, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(o.Config.RootDir)
	if err != nil || len(left) != 1 || left[0].Name() != "agent.lock" {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := New(t.Context(), o); !errors.Is(err, node.ErrLocked) {
		t.Errorf("two at rest: %v", err)
	}
	for range 2 {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := n.Run(t.Context()); !errors.Is(err, agent.ErrStarted) {
		t.Errorf("it ran after its end: %v", err)
	}
	if n, err = New(t.Context(), o); err != nil {
		t.Fatalf("after the first one's end: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	o.Services = []Service{badService}
	for range 2 {
		if _, err := New(t.Context(), o); err == nil || errors.Is(err, node.ErrLocked) {
			t.Errorf("one that could not be made: %v", err)
		}
	}
}

// A node answers what its parts know, and says so of the rest.
func TestAnswersWithoutParts(t *testing.T) {
	n, err := New(t.Context(), options(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	h := local.Handler(n, nil)
	for path, want := range map[string]int{
		"/v1/pods": http.StatusOK, "/v1/node/why": http.StatusOK, "/v1/problems": http.StatusOK, "/metrics": http.StatusNotFound,
		"/v1/images": http.StatusNotImplemented, "/stats/summary": http.StatusNotImplemented, "/stats/summary?only_cpu_and_memory=true": http.StatusNotImplemented,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s = %d %s, want %d", path, w.Code, w.Body, want)
		}
	}
	if why := n.WhyNode(); why.Name != "n" || why.ShuttingDown || len(why.Parts) != 0 || len(why.Figures) != 0 {
		t.Errorf("node %+v", why)
	}
}

// The cluster asks about a node that is made after it, and gives it a runtime.
func TestClusterOfANode(t *testing.T) {
	o := options(t, "")
	o.Config.Kubeconfig = "/k"
	own := critest.New()
	var facts *Facts
	began := make(chan struct{})
	o.Join = func(b *Builder) (*Cluster, error) {
		facts = b.Facts
		if facts.Healthy() == nil {
			t.Error("an agent that is not made is well")
		}
		return &Cluster{Runtime: own, Images: own, Run: func(ctx context.Context) error {
			close(began)
			<-ctx.Done()
			return nil
		}}, nil
	}
	o.Parts = StandardWithout("hostsetup")
	var saw agent.Config
	o.Agent = func(c *agent.Config) { saw = *c }
	n, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if saw.Runtime != own || saw.Images.Service != own || saw.Status.Sink != nil || n.Builder().Runtime != own {
		t.Errorf("the agent has %+v", saw)
	}
	capacity, _ := facts.Resources()
	if capacity.Cpu().IsZero() || facts.Healthy() == nil { // the runtime has not been listed
		t.Errorf("capacity %v", capacity)
	}
	stop := testrun.Start(t, n.Run)
	<-n.Up()
	<-began
	stop()
}

// Services run until the agent has ended. One that fails is logged.
func TestServices(t *testing.T) {
	core, logs := observer.New(zapcore.ErrorLevel)
	o := options(t, "")
	o.Log = zap.New(core)
	failed, closing := make(chan struct{}), atomic.Bool{}
	o.Services = []Service{
		func(*Node) (string, func(context.Context) error, error) { return "left out", nil, nil },
		func(*Node) (string, func(context.Context) error, error) {
			return "failing", func(context.Context) error { defer close(failed); return errors.New("it failed") }, nil
		},
		func(n *Node) (string, func(context.Context) error, error) {
			return "lasting", func(ctx context.Context) error {
				<-ctx.Done()
				closing.Store(true)
				if n.Builder().Facts.Healthy == nil {
					t.Error("nothing can be asked any more")
				}
				return nil
			}, nil
		},
		LocalSocket,
	}
	n, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()
	<-n.Up()
	<-failed
	if _, err := local.NewClient(n.Builder().Path("agent.sock")).Pods(t.Context()); err != nil {
		t.Error(err)
	}
	if closing.Load() {
		t.Error("a service ends with another one")
	}
	if err := n.Run(ctx); !errors.Is(err, agent.ErrStarted) {
		t.Errorf("it ran a second time: %v", err)
	}
	cancel()
	if err := <-ended; err != nil || !closing.Load() {
		t.Errorf("ended with %v, services %t", err, closing.Load())
	}
	if got := logs.FilterField(zap.String("service", "failing")).Len(); got != 1 || logs.Len() != 1 {
		t.Errorf("log %+v", logs.All())
	}
	if exists(n.Builder().Path("agent.sock")) {
		t.Error("the socket is left")
	}
}

// A service that cannot do what it was told to do by name ends the node.
func TestVitalServiceEndsTheNode(t *testing.T) {
	o := options(t, "")
	taken := errors.New("address already in use")
	o.Services = []Service{func(*Node) (string, func(context.Context) error, error) {
		return "api", func(context.Context) error { return Vital(taken) }, nil
	}}
	o.Agent = func(c *agent.Config) {
		if _, ok := c.Status.Sink.(statusmgr.Loader); !ok { // who wraps the sink of a node keeps its memory
			t.Errorf("sink %T remembers nothing", c.Status.Sink)
		}
	}
	n, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Run(t.Context()); !errors.Is(err, taken) || !strings.Contains(err.Error(), "api: ") {
		t.Errorf("ended with %v", err)
	}
	if Vital(nil) != nil {
		t.Error("no error became one")
	}
}

// A second node on one root directory is not even made, and leaves the first one's
// socket alone. Who is next gets the lock when the last service has ended.
func TestOneNodeOnADirectory(t *testing.T) {
	o := options(t, "")
	var second error
	o.Services = []Service{LocalSocket, func(*Node) (string, func(context.Context) error, error) {
		return "last", func(ctx context.Context) error {
			<-ctx.Done()
			_, second = New(context.WithoutCancel(ctx), o)
			return nil
		}, nil
	}}
	first, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	stop := testrun.Start(t, first.Run)
	<-first.Up()
	if _, err := New(t.Context(), o); !errors.Is(err, node.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("the second one was made: %v", err)
	}
	if !exists(first.Builder().Path("agent.sock")) {
		t.Error("the first one's socket is gone")
	}
	stop()
	if !errors.Is(second, node.ErrLocked) {
		t.Errorf("while a service ends: %v", second)
	}
	next, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

// A service that hangs does not keep a node from ending, and keeps the lock.
func TestServiceThatHangs(t *testing.T) {
	o := options(t, "")
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		o.Services = []Service{func(*Node) (string, func(context.Context) error, error) {
			return "hanging", func(context.Context) error { <-free; return nil }, nil
		}}
		rt := critest.New()
		o.Runtime, o.Images = rt, rt
		n, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- n.Run(ctx) }()
		<-n.Up()
		at := time.Now()
		cancel()
		if err := <-ended; err != nil || time.Since(at) > time.Minute {
			t.Errorf("ended after %v with %v", time.Since(at), err)
		}
		if _, err := New(t.Context(), o); !errors.Is(err, node.ErrLocked) {
			t.Errorf("the next one: %v", err)
		}
		close(free)
		synctest.Wait()
		if n, err = New(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		_ = n.Close()
	})
}

// A node that is not given a runtime looks for one, and closes what it has opened.
func TestRuntimeOfItsOwn(t *testing.T) {
	o := options(t, "", "--container-runtime-endpoint", "unix:///run/nowhere.sock")
	o.Runtime, o.Images = nil, nil
	n, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if n.client == nil || n.Builder().Runtime == nil || n.Builder().Images == nil {
		t.Error("it has no client")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestSupported(t *testing.T) {
	yes := true
	c := &kubeletconfig.Config{}
	if err := Supported(c); err != nil {
		t.Error(err)
	}
	c.FailCgroupV1 = &yes
	if err := Supported(c); (err == nil) != machineHasV2() {
		t.Error(err)
	}
}

func machineHasV2() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}
