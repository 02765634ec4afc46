package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
)

// fitter answers with what it was told to.
type fitter struct {
	local.Agent
	answer local.Fit
	asked  *v1.Pod
}

func (f *fitter) Fit(pod *v1.Pod, _ ...*v1.Pod) local.Fit {
	f.asked = pod
	return f.answer
}

func TestPlacementFitCommand(t *testing.T) {
	f := &fitter{}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := local.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: local.Handler(f, nil)} //nolint:gosec // of a test
	go func() { _ = srv.Serve(l) }()
	defer func() { _ = srv.Close() }()
	manifest := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(manifest, []byte(box("a", "sleep, forever")), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := execute(t.Context(), stdio{in: strings.NewReader("kind: Node"), out: &out, err: &errs}, append(args, "--socket", socket))
		return code, out.String(), errs.String()
	}
	f.answer = local.Fit{Fits: true, Requests: []string{"1 of 2 free CPUs"}, Containers: []local.FitContainer{
		{Name: "c", CPUs: "1-2", Own: true, MemoryNodes: "0", Memory: map[string]uint64{"memory": 1 << 30, "hugepages-2Mi": 4 << 20}, Hint: local.FitHint{Nodes: "0", Preferred: true}},
		{Name: "log", CPUs: "0,3"},
	}}
	code, out, errs := ask("fit", "-f", manifest)
	want := `fits: 1 of 2 free CPUs
CONTAINER   CPUS           MEMORY                  MEMORY NODES   HINT
c           1-2            1Gi,hugepages-2Mi=4Mi   0              0 (preferred)
log         0,3 (shared)   -                       any            any
`
	if code != 0 || out != want || f.asked.Name != "a" {
		t.Errorf("%d, %q\n%s", code, errs, out)
	}
	f.answer = local.Fit{Reason: "TopologyAffinityError", Message: "no room", Steps: []string{"container c: too large"}}
	if code, out, errs := ask("fit", "-f", manifest); code != 1 || out != "does not fit: TopologyAffinityError: no room\ncontainer c: too large\n" || errs != "" {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	for want, answer := range map[string]local.Fit{
		"fits":                     {Fits: true, Containers: []local.FitContainer{{Name: "c"}}},
		"fits: image i comes":      {Fits: true, Missing: []local.FitMissing{{Message: "image i comes", Comes: true}}},
		"would wait: no ConfigMap": {Fits: true, Missing: []local.FitMissing{{Message: "no ConfigMap"}}},
		"does not fit: OutOfcpu: wants 64 CPUs, and 2 are free; wants 5Gi; no image": {
			Reason: "OutOfcpu", Message: "1 of 2", Shortages: []string{"wants 64 CPUs, and 2 are free", "wants 5Gi"}, Missing: []local.FitMissing{{Message: "no image"}},
		},
	} {
		f.answer = answer
		if code, out, errs := ask("fit", "-f", manifest); out != want+"\n" || errs != "" || code == 0 != answer.Fits {
			t.Errorf("%d, %q, %q; want %q", code, out, errs, want)
		}
	}
	f.answer = local.Fit{Reason: "TopologyAffinityError"}
	code, out, _ = ask("fit", "-f", manifest, "-o", "json")
	var back local.Fit
	if err := json.Unmarshal([]byte(out), &back); err != nil || code != 1 || back.Reason != f.answer.Reason {
		t.Errorf("%d, %q, %v", code, out, err)
	}
	for _, c := range [][]string{{"fit"}, {"fit", "pod.yaml"}, {"fit", "-f", "/none"}, {"fit", "-f", "-"}, {"fit", "-f", manifest, "-o", "yaml"}} {
		if code, out, errs := ask(c...); code != 1 || out != "" || !strings.HasPrefix(errs, "agent: ") {
			t.Errorf("%q: %d, %q, %q", c, code, out, errs)
		}
	}
}
