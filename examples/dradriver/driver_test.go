package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint"
	"github.com/nodewright/nodewright/dra"
	"github.com/nodewright/nodewright/pluginmgr"
)

// What finds plugins fits what uses them, though neither knows the other.
var _ pluginmgr.Handler = dra.Registrar{}

const late = time.Minute

// oneClaim is all that there is.
type oneClaim struct{}

func (oneClaim) Claim(context.Context, string, string) (*resourceapi.ResourceClaim, error) {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "u1"}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "p"}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: "gpu.example.com", Pool: pool, Device: device, Request: "r"}},
	}}
	return c, nil
}

// agent runs both managers until stop is called.
func agent(t *testing.T, registry, state string) (m *dra.Manager, changed <-chan struct{}, stop func()) {
	t.Helper()
	store, err := checkpoint.Open(checkpoint.Config{Dir: state})
	if err != nil {
		t.Fatal(err)
	}
	m, err = dra.New(dra.Config{Store: store, Claims: oneClaim{}, Boot: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(map[types.UID][]string{}); err != nil {
		t.Fatal(err)
	}
	plugins, err := pluginmgr.New(pluginmgr.Config{Dir: registry, Handlers: map[string][]pluginmgr.Handler{pluginmgr.DRAPlugin: {m.Registrar()}}})
	if err != nil {
		t.Fatal(err)
	}
	news := make(chan struct{}, 1)
	m.Subscribe(func(dra.Change) {
		select {
		case news <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- m.Run(ctx) }()
	<-m.Ready()
	go func() { ended <- plugins.Run(ctx) }()
	return m, news, func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	}
}

// A claim is prepared, the agent is restarted, the device gets sick, the driver
// is too.
func TestWithManagers(t *testing.T) {
	base, err := os.MkdirTemp("", "dra")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	d := &driver{
		name: "gpu.example.com", registry: filepath.Join(base, "reg"), dir: filepath.Join(base, "p"),
		cdi: filepath.Join(base, "cdi"), sick: filepath.Join(base, "sick"),
	}
	if err := d.check(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said []string
	heard := func(what string) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range said {
			if strings.HasPrefix(s, what) {
				n++
			}
		}
		return n
	}
	begin := func() (end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- d.run(ctx, func(what string) {
				mu.Lock()
				defer mu.Unlock()
				said = append(said, what)
			})
		}()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	state := t.TempDir()
	m, changed, stop := agent(t, d.registry, state)
	until := func(what string, so func() bool) {
		t.Helper()
		end := time.After(late)
		for !so() {
			select {
			case <-changed:
			case <-time.After(20 * time.Millisecond):
			case <-end:
				t.Fatalf("not %s; the driver said %q", what, said)
			}
		}
	}
	name := "c"
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"},
		Spec: v1.PodSpec{
			ResourceClaims: []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}},
			Containers:     []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "gpu"}}}}},
		},
	}
	connected := func() bool { s := m.Drivers(); return len(s) == 1 && s[0].Connected }
	var notYet *dra.NotYetError
	if err := m.Prepare(t.Context(), pod); !errors.As(err, &notYet) {
		t.Errorf("before the driver came: %v", err)
	}
	end := begin()
	until("connected", connected)
	if err := m.Prepare(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	ids, err := m.Attachment(pod, "main")
	if err != nil || !slices.Equal(ids, []string{"gpu.example.com/claim=u1"}) {
		t.Errorf("%v, %v", ids, err)
	}
	if _, err := os.Stat(filepath.Join(d.cdi, "gpu.example.com-u1.json")); err != nil {
		t.Error(err)
	}

	stop()
	m, changed, stop = agent(t, d.registry, state)
	if again, err := m.Attachment(pod, "main"); err != nil || !slices.Equal(again, ids) {
		t.Errorf("after a restart %v, %v", again, err)
	}
	health := func() v1.ResourceHealthStatus { return m.Health("p", "main")[0].Resources[0].Health }
	until("healthy", func() bool { return health() == v1.ResourceHealthStatusHealthy })
	if err := os.WriteFile(d.sick, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until("unhealthy", func() bool { return health() == v1.ResourceHealthStatusUnhealthy })
	end()
	until("unknown", func() bool { return health() == v1.ResourceHealthStatusUnknown })
	end = begin()
	until("back", func() bool { return connected() && health() == v1.ResourceHealthStatusUnhealthy })
	if err := m.Unprepare(t.Context(), pod.UID); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(d.cdi, "gpu.example.com-u1.json")); err == nil {
		t.Error("the CDI file is still there")
	}
	if p, u := heard("prepared"), heard("unprepared"); p != 1 || u != 1 {
		t.Errorf("prepared %d times and unprepared %d times, want once", p, u)
	}
	end()
	stop()
}

func TestFlags(t *testing.T) {
	d := &driver{name: "a/b", registry: "/proc/nowhere", dir: t.TempDir(), cdi: t.TempDir()}
	err := errors.Join(d.check(), extra([]string{"x"}))
	for _, want := range []string{"--name", "--registry", "arguments"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to tell of %s", err, want)
		}
	}
}
