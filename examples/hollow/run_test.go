package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

func testOptions(t *testing.T, out *bytes.Buffer) options {
	return options{
		nodes: 10, name: "hollow", dir: t.TempDir(), maxPods: 110, cpus: 8, memory: "16Gi", numa: 2, cpuPolicy: "static", topologyPolicy: "none",
		devices: counts{"example.com/gpu": 2}, labels: pairs{"example.com/rack": "7"}, podsPerNode: 5, every: time.Minute, end: time.Millisecond,
		log: zap.NewNop(), out: out,
	}
}

// Ten nodes with five pods each start, report themselves and end.
func TestFleet(t *testing.T) {
	var out bytes.Buffer
	o := testOptions(t, &out)
	o.profile = t.TempDir()
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "all started 10 nodes, 50 pods") || !strings.Contains(text, "at rest for") {
		t.Errorf("reported:\n%s", text)
	}
}

func TestBadOptions(t *testing.T) {
	for _, tc := range []struct {
		change func(*options)
		want   string
	}{
		{func(o *options) { o.nodes = 0 }, "--nodes=0: want 1 or more"},
		{func(o *options) { o.podsPerNode = 111 }, "--pods-per-node=111: want 0 to the 110 of --max-pods"},
		{func(o *options) { o.kubeconfig = "/k" }, "--pods-per-node=5: want 0 with --kubeconfig"},
		{func(o *options) { o.every = 0 }, "--report=0s"},
		{func(o *options) { o.memory = "much" }, "--memory=much"},
		{func(o *options) { o.cpus = 3 }, "Config.CPUs is 3 and NUMANodes 2"},
		{func(o *options) { o.cpuPolicy = "all" }, "cpuManagerPolicy"},
	} {
		o := testOptions(t, &bytes.Buffer{})
		tc.change(&o)
		if err := run(t.Context(), o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v; want %q", err, tc.want)
		}
	}
}

func TestFlagsOfSeveralValues(t *testing.T) {
	var c counts
	var p pairs
	for _, err := range []error{c.Set("example.com/gpu=8"), c.Set("a=1"), p.Set("k=v=w"), p.Set("a=")} {
		if err != nil {
			t.Error(err)
		}
	}
	if c.String() != "a=1,example.com/gpu=8" || p.String() != "a=,k=v=w" {
		t.Errorf("%q, %q", c.String(), p.String())
	}
	for _, text := range []string{"", "gpu", "gpu=", "gpu=0", "gpu=x", "=1"} {
		if c.Set(text) == nil {
			t.Errorf("device %q is taken", text)
		}
	}
	if p.Set("k") == nil || p.Set("=v") == nil {
		t.Error("a label without a key or a value is taken")
	}
}

func TestAddresses(t *testing.T) {
	for i, want := range map[int]string{0: "198.18.0.1", 254: "198.18.0.255", 255: "198.18.1.0", 65535: "198.19.0.0"} {
		if got := address(i).String(); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}
