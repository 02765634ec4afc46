package record_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/record"
)

var updateFormat = flag.Bool("update", false, "write testdata/v1.record anew: only before a version is released")

// A file of an earlier version is read. testdata/v1.record has each kind of fact as the first version
// wrote it, and a kind and a field of a later version, which are skipped.
func TestFormat(t *testing.T) {
	path := filepath.Join("testdata", "v1.record")
	if *updateFormat {
		writeFormat(t, path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := record.ReadFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := kindsOf(entries), "Begin Stop Clock Gap Wanted Verdict Instance Probe Image Sync Status Resize Devices Condition Plugin Happened Decision SandboxRun"; got != want {
		t.Errorf("it has %s, want %s", got, want)
	}
	for _, s := range record.Replay(entries) {
		if len(s.Differences) > 0 {
			t.Errorf("decided otherwise: %q", s.Differences)
		}
	}
	probe := entries[7].Fact.(*record.Probe)
	if probe.Target != "10.1.2.3:8080/healthz" || probe.Times != 3 || !probe.Since.Equal(time.Unix(1900000000, 0)) || entries[7].Container != "app" || entries[7].Pod != web {
		t.Errorf("the probe is %+v of %+v", probe, entries[7])
	}
}

func writeFormat(t *testing.T, path string) {
	t.Helper()
	code, grace := int32(137), int64(30)
	at := time.Unix(1900000000, 0).UTC()
	_, decision := record.Decide(podlife.Knowledge{Pod: &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "app"}}}}})
	var entries []record.Entry
	for _, f := range []record.Fact{
		&record.Begin{Node: "edge-7", Version: "v1"}, &record.Stop{}, &record.Clock{By: time.Hour}, &record.Gap{Lost: 1},
		&record.Wanted{Op: "ADD", Source: "file", Generation: 1, Containers: []record.Image{{Container: "app", Image: "web:1"}}},
		&record.Verdict{Kind: podlife.Evicted, Reason: "Evicted", Message: "low on memory", Grace: &grace},
		&record.Instance{ID: "a", State: "exited", Restarts: 1, Image: "web:1", Started: at, Finished: at, ExitCode: &code, Reason: "OOMKilled", Limit: 64 << 20},
		&record.Probe{ID: "a", Type: "liveness", How: "http", Target: "10.1.2.3:8080/healthz", Times: 3, Since: at, Code: 503, Error: "timed out"},
		&record.Image{Image: "web:1", Reason: "ErrImagePull", Error: "not found", Took: time.Second},
		&record.Sync{Reason: "FailedMount", Error: "timed out", Volumes: []string{"data"}, Hung: true},
		&record.Status{Phase: "Running", Ready: true, Reason: "Evicted"}, &record.Resize{State: "PodResizePending", Reason: "Deferred"},
		&record.Devices{Resource: "nvidia.com/gpu", Unhealthy: 1}, &record.Condition{Type: "MemoryPressure", On: true, Reason: "KubeletHasInsufficientMemory"},
		&record.Plugin{Name: "nvidia.com/gpu", Gone: true, Error: "timed out"}, &record.Happened{Reason: "SystemOOM"}, decision, &record.SandboxRun{ID: "a", Attempt: 1, Took: time.Second, Error: "timed out"},
	} {
		entries = append(entries, record.Entry{At: at, Boot: "boot-1", Pod: web, Container: "app", Fact: f})
	}
	var b bytes.Buffer
	if err := record.Write(&b, entries); err != nil {
		t.Fatal(err)
	}
	later := record.Frame([]byte(`{"at":"2030-03-17T17:46:40Z","kind":"of a later version","fact":{"x":1},"y":2}`))
	b.Write(later[bytes.IndexByte(later, '\n')+1:])
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}
