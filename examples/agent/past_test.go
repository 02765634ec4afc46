package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/node/kerneltest"
	"github.com/nodewright/nodewright/node/status"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/record"
)

func TestParseAt(t *testing.T) {
	now := time.Date(2030, 1, 2, 9, 0, 0, 0, time.Local)
	for s, want := range map[string]struct {
		at     time.Time
		within time.Duration
	}{
		"03:12":                {time.Date(2030, 1, 2, 3, 12, 0, 0, time.Local), time.Minute},
		"03:12:07":             {time.Date(2030, 1, 2, 3, 12, 7, 0, time.Local), time.Second},
		"22:00":                {time.Date(2030, 1, 1, 22, 0, 0, 0, time.Local), time.Minute}, // of yesterday
		"2029-12-24 22:00":     {time.Date(2029, 12, 24, 22, 0, 0, 0, time.Local), time.Minute},
		"2029-12-24T22:00:01":  {time.Date(2029, 12, 24, 22, 0, 1, 0, time.Local), time.Second},
		"2029-12-24T22:00:01Z": {time.Date(2029, 12, 24, 22, 0, 1, 0, time.UTC), time.Second},
	} {
		if at, within, err := parseAt(s, now); err != nil || !at.Equal(want.at) || within != want.within {
			t.Errorf("%s: %v, %v, %v", s, at, within, err)
		}
	}
	for _, s := range []string{"3 o'clock", "25:00", ""} {
		if _, _, err := parseAt(s, now); err == nil || !strings.Contains(err.Error(), "--at=") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// recordedRoot returns the root directory of an agent that is gone, with a record of a pod.
func recordedRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	r, err := record.New(record.Config{Dir: filepath.Join(root, "record"), Node: "edge-7"})
	if err != nil {
		t.Fatal(err)
	}
	pod := record.Pod{Namespace: "shop", Name: "web-edge-7", UID: "1"}
	now, code := time.Now(), int32(137)
	for _, f := range []record.Fact{
		&record.Instance{ID: "a", State: "exited", Started: now.Add(-time.Minute), Finished: now.Add(-time.Second), ExitCode: &code, Reason: "OOMKilled", Limit: 64 << 20},
		&record.Instance{ID: "b", State: "running", Started: now, Restarts: 1},
	} {
		r.Record(record.Entry{Pod: pod, Container: "app", Fact: f})
	}
	_, d := record.Decide(podlife.Knowledge{Pod: &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app"}}}}})
	r.Record(record.Entry{Pod: pod, Fact: d})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return root
}

// command runs a command line, and returns its output and exit code.
func command(t *testing.T, in string, args ...string) (out, problems string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = execute(t.Context(), stdio{in: strings.NewReader(in), out: &o, err: &e}, args)
	return o.String(), e.String(), code
}

// No agent runs, and the pod is gone.
func TestWhyOfThePast(t *testing.T) {
	root := recordedRoot(t)
	const killed = "it was killed for using more than its memory limit of 64 MiB"
	for _, args := range [][]string{
		{"why", "web", "--since", "1h"}, {"why", "shop/web-edge-7", "--since", "1h"}, {"why", "pod/web", "-n", "shop", "--since", "1h"},
		{"why", "web", "--at", time.Now().Format(time.DateTime)}, {"why", "web", "--at", time.Now().Format(time.RFC3339), "-o", "json"},
	} {
		out, problems, code := command(t, "", append(args, "--root-dir", root)...)
		if code != 0 || !strings.Contains(out, killed) {
			t.Errorf("%q: exit code %d, %s%s", args, code, out, problems)
		}
		if args[len(args)-1] == "json" {
			var past local.Past
			if err := json.Unmarshal([]byte(out), &past); err != nil || past.Namespace != "shop" || len(past.Moments) == 0 {
				t.Errorf("%v: %+v", err, past)
			}
		}
	}
	if out, _, code := command(t, "", "why", "node", "--since", "1h", "--root-dir", root); code != 0 || !strings.HasPrefix(out, "edge-7:\n") || !strings.Contains(out, "the agent was started") {
		t.Errorf("node: exit code %d, %s", code, out)
	}
	for want, args := range map[string][]string{
		`pod "other" is not in the record`: {"why", "other", "--since", "1h"},
		"want a time such as 03:12":        {"why", "web", "--at", "now"},
		"want one of them":                 {"why", "web", "--at", "03:12", "--since", "1h"},
		"want json":                        {"why", "web", "--at", "03:12", "-o", "yaml"},
		"want --at TIME":                   {"why", "web", "-o", "json"},
		"which namespace?":                 {"why", "shop/web", "-n", "other", "--since", "1h"},
		"is not in the record in":          {"why", "web", "-n", "other", "--since", "1h"},
	} {
		if _, problems, code := command(t, "", append(args, "--root-dir", root)...); code != 1 || !strings.Contains(problems, want) {
			t.Errorf("%q: exit code %d, %q, want %q", args, code, problems, want)
		}
	}
}

func TestExportAndReplay(t *testing.T) {
	root := recordedRoot(t)
	path := filepath.Join(t.TempDir(), "web.record")
	if _, problems, code := command(t, "", "record", "export", "web", path, "--anonymous", "--root-dir", root); code != 0 || !strings.Contains(problems, "entries in ") {
		t.Fatalf("exit code %d, %s", code, problems)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(whole, []byte("web")) || bytes.Contains(whole, []byte("edge-7")) {
		t.Errorf("names are in the anonymous file:\n%s", whole)
	}
	if _, problems, code := command(t, "", "record", "export", "web", path, "--root-dir", root); code != 1 || !strings.Contains(problems, "file exists") {
		t.Errorf("of a file that exists: exit code %d, %s", code, problems)
	}
	out, problems, code := command(t, "", "replay", path)
	if code != 0 || !strings.Contains(out, "make a sandbox (no pod sandbox exists); name-") || !strings.Contains(out, "1 decisions, 0 of which this version makes differently") {
		t.Errorf("exit code %d, %s%s", code, out, problems)
	}
	// A version that decided otherwise.
	entries, err := record.ReadFile(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if d, ok := e.Fact.(*record.Decision); ok {
			d.Result.Regular[0].Do = "never"
		}
	}
	var b strings.Builder
	if err := record.Write(&b, entries); err != nil {
		t.Fatal(err)
	}
	out, _, code = command(t, b.String(), "replay", "-")
	if code != int(decidesOtherwise) || !strings.Contains(out, "this version decides differently: container name-") || !strings.Contains(out, ": was never, is start") {
		t.Errorf("exit code %d, %s", code, out)
	}
	// Files that are no record, or a part of one.
	for text, want := range map[string]string{
		"":                                  record.ErrDamaged.Error(),
		"apiVersion: v1\n":                  record.ErrDamaged.Error(),
		"nodewright record 2\n":             record.ErrVersion.Error(),
		string(whole[:len(whole)-9]):        "it is cut off",
		string(whole) + "more":              "at byte",
		string(whole) + "more" + b.String(): "at byte",
	} {
		if _, problems, code := command(t, text, "replay", "-"); code != 1 || !strings.Contains(problems, want) {
			t.Errorf("%.40q: exit code %d, %q, want %q", text, code, problems, want)
		}
	}
	if err := replay(stdio{in: strings.NewReader("x")}, filepath.Join(root, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a missing file: %v", err)
	}
}

func TestRecordMachine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "machine.zip")
	if _, problems, code := command(t, "", "record", "machine", path); code != 0 {
		t.Fatal(problems)
	}
	archive, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := kerneltest.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	facts, err := status.System{Files: m}.Facts(t.Context())
	here, err2 := status.System{Files: os.DirFS("/")}.Facts(t.Context())
	if err != nil || err2 != nil || facts.Capacity.Cpu().Cmp(*here.Capacity.Cpu()) != 0 || facts.Capacity.Memory().Cmp(*here.Capacity.Memory()) != 0 {
		t.Errorf("%v, %v, want %v, %v", facts.Capacity, err, here.Capacity, err2)
	}
	for args, want := range map[string]string{path: "file exists", "": "want a file"} {
		if _, problems, code := command(t, "", append([]string{"record", "machine"}, strings.Fields(args)...)...); code == 0 || !strings.Contains(problems, want) {
			t.Errorf("%q: %s", args, problems)
		}
	}
}
