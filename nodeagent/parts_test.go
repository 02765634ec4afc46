package nodeagent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/internal/systemdtest"
	"github.com/nodewright/nodewright/node/shutdown"
	"github.com/nodewright/nodewright/node/status"
	"github.com/nodewright/nodewright/pluginmgr"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// api is a cluster as far as parts see it.
type api struct{}

func (api) Ensure(context.Context, *v1.Pod, *v1.Pod) error { return nil }
func (api) Remove(context.Context, *v1.Pod) error          { return nil }

// keeper is a plugins.Tokens that keeps some.
type keeper struct{ plugins.Tokens }

func (keeper) Retain(func(types.UID) bool) {}

// steady never goes down.
type steady struct{ shutdown.Machine }

func TestStandard(t *testing.T) {
	const alone = "podstart stats collection eviction preemption startorder devices placement claims plugins podresources resize userns oom swap hostsetup"
	long := strings.Repeat("/long", 20)
	for _, tc := range []struct {
		name, content string
		flags         []string
		cluster       *Cluster
		list          []Maker
		want          string
	}{
		{name: "alone", want: alone},
		{name: "a machine that goes down", content: "shutdownGracePeriod: 10s", want: strings.Replace(alone, "preemption", "preemption shutdown", 1)},
		{name: "in a cluster", cluster: &Cluster{Mirrors: api{}}, want: strings.Replace(alone, "oom", "mirrors oom", 1)},
		{name: "no room for sockets", flags: []string{"--root-dir", long}, want: "podstart stats collection eviction preemption startorder placement claims plugins resize userns oom swap hostsetup"},
		{name: "without some", list: StandardWithout("devices", "eviction"), want: "podstart stats collection preemption startorder placement claims plugins podresources resize userns oom swap hostsetup"},
		{name: "with one more", list: append([]Maker{With(part.AdmitFunc("own", nil))}, OOM), want: "own oom"},
	} {
		b := newBuilder(t, tc.content, tc.flags...)
		b.Cluster = tc.cluster
		if tc.list == nil {
			tc.list = Standard()
		}
		parts, err := b.make(tc.list)
		var names []string
		for _, p := range parts {
			names = append(names, p.Name())
		}
		if got := strings.Join(names, " "); err != nil || got != tc.want {
			t.Errorf("%s: parts %s, want %s; %v", tc.name, got, tc.want, err)
		}
	}
}

// All mistakes are reported at once.
func TestPartsThatCannotBeMade(t *testing.T) {
	bad := func(*Builder) (part.Part, error) { return nil, errors.New("no licence") }
	_, err := newBuilder(t, "").make(append(StandardWithout("mirrors", "mirrors", "nosuch"), bad))
	for _, want := range []string{`no part "mirrors"`, `no part "nosuch"`, "no licence"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if _, err := newBuilder(t, "").make([]Maker{Eviction}); err == nil {
		t.Error("eviction was made without figures")
	}
}

// What a part leaves, others find.
func TestFacts(t *testing.T) {
	b := newBuilder(t, "shutdownGracePeriod: 10s")
	f := b.Facts
	if f.OwnCPUs(&v1.Pod{}) || f.Pressure() != nil || f.ShuttingDown() != nil || f.FreshDevices() || f.Healthy() == nil {
		t.Error("something is known of a node without parts")
	}
	if _, err := f.ListImages(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("images: %v", err)
	}
	if _, known := f.VolumesInUse(); known {
		t.Error("volumes of a node without an agent are known")
	}
	eviction, err := b.eviction()
	if err != nil || eviction.Stats != nil || eviction.Hold() {
		t.Errorf("before any part: %+v, %v", eviction, err)
	}
	if _, err := b.make(Standard()); err != nil {
		t.Fatal(err)
	}
	if f.Usage == nil || f.EvictionStats.Need() == nil || f.Reclaimer.Need() == nil || f.Devices.Need() == nil || f.Claims.Need() == nil || f.CPUs.Need() != nil {
		t.Errorf("facts %+v", f) // nothing is placed: who has which CPUs is not served
	}
	if len(f.Pressure()) == 0 || len(f.Checks) != 1 {
		t.Errorf("facts %+v", f)
	}
	var kinds []string
	for _, k := range f.Plugins.Need() {
		kinds = append(kinds, k.Type)
		if k.After == nil {
			t.Errorf("plugins of type %s are found before the devices of pods are known", k.Type)
		}
	}
	if !slices.Equal(kinds, []string{pluginmgr.DevicePlugin, pluginmgr.DRAPlugin}) {
		t.Errorf("plugins of types %q are found", kinds)
	}
	// Eviction was configured before the part that knows that the machine goes down.
	f.ShuttingDown = func() error { return shutdown.ErrShuttingDown }
	if !eviction.Hold() {
		t.Error("pods that were evicted begin again while the machine goes down")
	}
	changes := 0
	f.OnChange(func() { changes++ })
	f.OnChange(func() { changes++ })
	eviction.Changed()
	b.shutdown().Changed(true)
	if changes != 4 {
		t.Errorf("%d changes were heard of, want 4", changes)
	}
}

// A maker that needs what a later one gives is an error that names both.
func TestOrderOfMakers(t *testing.T) {
	for _, tc := range []struct {
		name string
		list []Maker
		want string // "": the order works
	}{
		{"eviction before its statistics", []Maker{Eviction, Stats}, "nodeagent.Eviction needs Facts.EvictionStats, which nodeagent.Stats gives after it in the list of parts: list nodeagent.Stats before nodeagent.Eviction"},
		{"plugins before who handles them", []Maker{Plugins, Devices}, "nodeagent.Plugins needs Facts.Plugins, which nodeagent.Devices gives"},
		{"plugins between two who handle them", []Maker{Devices, Plugins, Claims}, "nodeagent.Plugins needs Facts.Plugins, which nodeagent.Claims gives"},
		{"pod resources before devices", []Maker{PodResources, Devices}, "nodeagent.PodResources needs Facts.Devices, which nodeagent.Devices gives"},
		{"pod resources before claims", []Maker{Devices, PodResources, Claims}, "nodeagent.PodResources needs Facts.Claims, which nodeagent.Claims gives"},
		{"plugins of nobody", []Maker{Plugins}, ""},
		{"as it should be", Standard(), ""},
	} {
		_, err := newBuilder(t, "").make(tc.list)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}

// Who has which CPUs is served where some are given out.
func TestPlacementIsKnown(t *testing.T) {
	b := newBuilder(t, "cpuManagerPolicy: static\nreservedSystemCPUs: '0'")
	if _, err := b.make([]Maker{Placement}); err != nil {
		t.Skip(err) // a machine with one CPU
	}
	if b.Facts.CPUs.Need() == nil || b.Facts.Memory.Need() == nil || b.Facts.CPUs.Need().Allocatable().Empty() {
		t.Errorf("facts %+v", b.Facts)
	}
}

func TestShutdownConfig(t *testing.T) {
	b := newBuilder(t, "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s")
	if s := b.shutdown(); s.Machine == nil || s.Requested.Seconds() != 30 || s.Critical.Seconds() != 10 || s.Store == nil {
		t.Errorf("shutdown %+v", s)
	}
	b.Hardware = &Hardware{Machine: status.Facts{BootID: "boot-1"}}
	if s := b.shutdown(); s.BootID != "boot-1" {
		t.Errorf("boot %q", s.BootID)
	}
	b.Machine = &steady{}
	systemd := systemdtest.New(t)
	t.Setenv("NOTIFY_SOCKET", systemd.Path)
	s := b.shutdown()
	if s.Machine != b.Machine {
		t.Errorf("machine %v", s.Machine)
	}
	s.Changed(false) // of which systemd does not hear
	s.Changed(true)
	if got := systemd.Next(); got != "EXTEND_TIMEOUT_USEC=45000000" {
		t.Errorf("systemd heard %q", got)
	}
}

func TestTokensAreKept(t *testing.T) {
	b := newBuilder(t, "")
	b.Cluster = &Cluster{}
	for _, keeps := range []bool{false, true} {
		if keeps {
			b.Cluster.Tokens = keeper{}
		}
		parts, err := b.make([]Maker{Tokens})
		if err != nil || slices.ContainsFunc(parts, func(p part.Part) bool { return p.Name() == "tokens" }) != keeps {
			t.Errorf("keeps %t: parts %v, %v", keeps, parts, err)
		}
	}
}
