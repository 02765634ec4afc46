package cri_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/cri/observed"
)

const lists = "ListContainers 1, ListPodSandbox 1"

// noted is a reader that notes what is made.
type noted struct {
	t  *testing.T
	rt *critest.Runtime
	r  *cri.Reader
	cri.PodRuntime
	sandboxConf *runtimeapi.PodSandboxConfig
	sandbox     string
	made        map[string]string // IDs of containers, by name
}

const uid = types.UID("u")

func labels(container string) map[string]string {
	l := map[string]string{cri.LabelPodUID: string(uid), cri.LabelPodName: "p", cri.LabelPodNamespace: "n"}
	if container != "" {
		l[cri.LabelContainerName] = container
	}
	return l
}

// newNoted follows events of a runtime that was listed once.
func newNoted(t *testing.T) *noted {
	n := &noted{t: t, rt: critest.New(), made: map[string]string{}}
	n.rt.AddImage("i")
	n.r = cri.NewReader(n.rt)
	n.PodRuntime = n.r.Noting(n.rt)
	n.sandboxConf = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: string(uid)}, Labels: labels("")}
	n.stream()
	n.list()
	return n
}

func (n *noted) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// stream opens the event stream.
func (n *noted) stream() {
	ctx, cancel := context.WithCancel(context.Background())
	n.t.Cleanup(cancel)
	go func() { _ = n.r.Events(ctx, func() {}, func(observed.Event) {}) }()
	synctest.Wait()
}

func (n *noted) list() {
	n.t.Helper()
	_, err := n.r.List(n.t.Context())
	n.must(err)
}

// run makes the sandbox, as a pod's start does.
func (n *noted) run() {
	n.t.Helper()
	var err error
	n.sandbox, err = n.RunPodSandbox(n.t.Context(), n.sandboxConf, "")
	n.must(err)
	_, err = n.PodSandboxStatus(n.t.Context(), n.sandbox, false)
	n.must(err)
}

func (n *noted) config(name string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: "i"},
		Labels: labels(name), Args: []string{"sleep", "forever"},
	}
}

// start makes containers.
func (n *noted) start(names ...string) {
	n.t.Helper()
	for _, name := range names {
		id, err := n.CreateContainer(n.t.Context(), n.sandbox, n.config(name), n.sandboxConf)
		n.must(err)
		n.made[name] = id
		n.must(n.StartContainer(n.t.Context(), id))
	}
}

// foreign makes a container that this process does not know of.
func (n *noted) foreign(name string) {
	n.t.Helper()
	id, err := n.rt.CreateContainer(n.t.Context(), n.sandbox, n.config(name), n.sandboxConf)
	n.must(err)
	n.must(n.rt.StartContainer(n.t.Context(), id))
}

// inspect returns what a look shows, which has to be what lists tell, and the calls
// that it took.
func (n *noted) inspect() (shown, calls string) {
	n.t.Helper()
	synctest.Wait()
	n.rt.ForgetCalls()
	pod, err := n.r.Inspect(n.t.Context(), uid)
	n.must(err)
	count := map[string]int{}
	for _, c := range n.rt.Calls() {
		count[c.Method]++
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		out = append(out, fmt.Sprintf("%s %d", name, count[name]))
	}
	whole, err := cri.NewReader(n.rt).Inspect(n.t.Context(), uid)
	n.must(err)
	whole.ObservedAt = pod.ObservedAt
	if !reflect.DeepEqual(pod, whole) {
		n.t.Errorf("the look shows\n%+v\nlists show\n%+v", pod, whole)
	}
	var items []string
	for _, s := range pod.Sandboxes {
		items = append(items, "sandbox "+s.State.String())
	}
	for _, c := range pod.Containers {
		items = append(items, c.Name+" "+c.State.String())
	}
	return strings.Join(items, ", "), strings.Join(out, ", ")
}

func TestInspectByID(t *testing.T) {
	errLost := errors.New("lost")
	for _, tc := range []struct {
		name  string
		do    func(n *noted)
		shown string
		calls string // of the first look
		again string // of the next
	}{
		{"one container", func(n *noted) { n.run(); n.start("a") }, "sandbox running, a running", "ContainerStatus 1", "ContainerStatus 1, PodSandboxStatus 1"},
		{
			"three containers", func(n *noted) { n.run(); n.start("a", "b", "c") },
			"sandbox running, a running, b running, c running", "ContainerStatus 3", "ContainerStatus 3, PodSandboxStatus 1",
		},
		{"a sandbox alone", func(n *noted) { n.run() }, "sandbox running", "PodSandboxStatus 1", "PodSandboxStatus 1"},
		{"a start long ago", func(n *noted) { n.run(); n.start("a"); time.Sleep(time.Second) }, "sandbox running, a running", "ContainerStatus 1, PodSandboxStatus 1", "ContainerStatus 1, PodSandboxStatus 1"},
		{"a container that ended", func(n *noted) { n.run(); n.start("a"); n.rt.Exit(n.made["a"], 1) }, "sandbox running, a exited", "ContainerStatus 1, PodSandboxStatus 1", "PodSandboxStatus 1"},
		{
			"a container that was lost without an event", func(n *noted) {
				n.run()
				n.start("a")
				n.rt.LoseEvents(true)
				n.must(n.rt.RemoveContainer(n.t.Context(), n.made["a"]))
			}, "sandbox running", "ContainerStatus 1, " + lists + ", PodSandboxStatus 1", "PodSandboxStatus 1",
		},
		{"a sandbox that ended", func(n *noted) { n.run(); n.start("a"); n.must(n.rt.StopPodSandbox(n.t.Context(), n.sandbox)) }, "sandbox exited, a exited", "ContainerStatus 1, " + lists + ", PodSandboxStatus 1", lists + ", PodSandboxStatus 1"},
		{"a pod that was killed", func(n *noted) { n.run(); n.start("a"); n.must(n.StopContainer(n.t.Context(), n.made["a"], 1)) }, "sandbox running, a exited", "ContainerStatus 1, " + lists + ", PodSandboxStatus 1", "PodSandboxStatus 1"},
		{
			"a pod that was removed", func(n *noted) {
				n.run()
				n.start("a")
				n.must(n.StopPodSandbox(n.t.Context(), n.sandbox))
				n.must(n.RemovePodSandbox(n.t.Context(), n.sandbox))
			}, "", lists, lists,
		},
		{"somebody else's container", func(n *noted) { n.run(); n.start("a"); n.foreign("b") }, "sandbox running, a running, b running", "ContainerStatus 2, " + lists + ", PodSandboxStatus 1", "ContainerStatus 2, PodSandboxStatus 1"},
		{
			"somebody else's container, without an event", func(n *noted) { n.run(); n.start("a"); n.rt.LoseEvents(true); n.foreign("b"); n.list() },
			"sandbox running, a running, b running", "ContainerStatus 2, " + lists + ", PodSandboxStatus 1", "ContainerStatus 2, PodSandboxStatus 1",
		},
		{
			"a creation whose answer was lost", func(n *noted) {
				n.run()
				n.start("a")
				n.rt.LoseEvents(true)
				n.rt.Around(nil, func(c critest.Call) error {
					if c.Method == "CreateContainer" {
						return errLost
					}
					return nil
				})
				if _, err := n.CreateContainer(n.t.Context(), n.sandbox, n.config("b"), n.sandboxConf); err == nil {
					n.t.Error("the answer was heard")
				}
				n.rt.Around(nil, nil)
			}, "sandbox running, a running, b created", "ContainerStatus 2, " + lists + ", PodSandboxStatus 1", "ContainerStatus 2, PodSandboxStatus 1",
		},
		{
			"a second sandbox", func(n *noted) {
				n.run()
				n.must(n.StopPodSandbox(n.t.Context(), n.sandbox))
				n.sandboxConf = proto.Clone(n.sandboxConf).(*runtimeapi.PodSandboxConfig)
				n.sandboxConf.Metadata.Attempt++
				n.run()
				n.start("a")
			}, "sandbox running, sandbox exited, a running", "ContainerStatus 1, " + lists + ", PodSandboxStatus 2", "ContainerStatus 1, " + lists + ", PodSandboxStatus 2",
		},
		{"a stream that ended", func(n *noted) { n.run(); n.start("a"); n.rt.Die(); n.rt.Revive() }, "sandbox running, a running", "ContainerStatus 1, " + lists + ", PodSandboxStatus 1", "ContainerStatus 1, " + lists + ", PodSandboxStatus 1"},
		{
			"a stream that began anew", func(n *noted) { n.run(); n.rt.Die(); n.rt.Revive(); n.stream(); n.start("a") },
			"sandbox running, a running", "ContainerStatus 1, " + lists + ", PodSandboxStatus 1", "ContainerStatus 1, PodSandboxStatus 1",
		},
		{
			"a list since then", func(n *noted) {
				n.run()
				n.start("a")
				n.rt.Die()
				n.rt.Revive()
				n.stream()
				n.list()
				n.inspect()
			},
			"sandbox running, a running", "ContainerStatus 1, PodSandboxStatus 1", "ContainerStatus 1, PodSandboxStatus 1",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNoted(t)
				tc.do(n)
				shown, calls := n.inspect()
				if shown != tc.shown || calls != tc.calls {
					t.Errorf("the look shows %q and takes %s; want %q and %s", shown, calls, tc.shown, tc.calls)
				}
				if shown, calls = n.inspect(); shown != tc.shown || calls != tc.again {
					t.Errorf("the next look shows %q and takes %s; want %q and %s", shown, calls, tc.shown, tc.again)
				}
			})
		})
	}
}

// Without an event stream all is by lists.
func TestInspectWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &noted{t: t, rt: critest.New(), made: map[string]string{}}
		n.rt.AddImage("i")
		n.rt.NoEvents()
		n.r = cri.NewReader(n.rt)
		n.PodRuntime = n.r.Noting(n.rt)
		n.sandboxConf = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: string(uid)}, Labels: labels("")}
		n.stream()
		n.list()
		n.run()
		n.start("a")
		for range 2 {
			if shown, calls := n.inspect(); shown != "sandbox running, a running" || calls != "ContainerStatus 1, "+lists+", PodSandboxStatus 1" {
				t.Errorf("the look shows %q and takes %s", shown, calls)
			}
		}
	})
}
