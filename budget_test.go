package nodewright_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of docs/reference/weights.md by the measurements")

// ceilings are the most that a stripped program may weigh that imports the package and does
// nothing else, in megabytes. A package that comes near its ceiling has got a new dependency.
var ceilings = map[string]float64{
	"checkpoint": 2, "checkpoint/checkpointtest": 2, "cpumgr": 2, "cri/crilog": 2, "cri/observed": 2, "eviction/notify": 2, "kubeapi/seal": 2, "memmgr": 2, "numa": 2,
	"podworker/serial": 2, "topology": 2, "volumemgr/mount": 2,
	"localapi/store": 4, "node/kerneltest": 4, "nodeagent/rootless": 4,
	"gc/logrotate": 4.5, "network": 4.5, "network/bridge": 4.5, "network/networktest": 4.5, "node/logind": 4.5, "probe/check": 4.5,
	"network/cni": 5,
	"gc":          7, "node/oom": 7, "pleg": 7,
	"server/auth": 8.5,
	"agent/local": 10, "eviction/rank": 10, "fit": 10, "node": 10, "node/status": 10, "podlife": 10, "podmeta": 10, "podstatus": 10, "record": 10,
	"node/stats":             10.5,
	"probe/check/grpchealth": 11.5,
	"pluginmgr":              12,
	"cri":                    12.5, "cri/critest": 12.5, "gc/crigc": 12.5, "localcri/image": 12.5,
	"signature": 8.5,
	"eviction":  14, "node/shutdown": 14, "podworker": 14, "probe": 14, "statusmgr": 14, "volumemgr": 14, "volumemgr/plugintest": 14,
	"bundle": 14.5, "cgroups": 14.5, "volumemgr/plugins": 14.5,
	"kubeletconfig": 15, "podmgr": 15,
	"kubeapi": 16, "kubeapi/kubeapitest": 16, "localapi": 16,
	"kubeapi/podsync": 16.5,
	"devicemgr":       21, "node/status/cristatus": 21, "record/otlp": 21,
	"csi": 21.5, "devicemgr/hostdevices": 21.5, "images": 21.5, "podruntime": 21.5, "podspec": 21.5,
	"dra": 22, "server": 22,
	"agent": 22.5, "agent/agenttest": 22.5, "agent/lifecycle": 22.5, "agent/part": 22.5, "agent/pressure": 22.5,
	"agent/csi": 23, "agent/resources": 23,
	"localcri": 23.5, "localcri/nri": 24.5,
	"nodeagent": 25, "nodeagent/bundle": 25,
	"nodeagent/csi": 26, "nodeagent/localapi": 26, "nodeagent/localcri": 26,
	"nodeagent/cluster": 27.5, "nodeagent/hollow": 27.5, "nodeagent/shadow": 27.5,
	"examples/edge":  39,
	"examples/agent": 57.5,
}

// programs are those whose weight is measured beside the packages.
var programs = []string{"examples/agent", "examples/edge"}

// weight is what a package costs its importer.
type weight struct {
	packages int     // that are not of the standard library, its own included
	mb       float64 // stripped size
}

// TestBudgets measures every package that can be imported, and the agents.
func TestBudgets(t *testing.T) {
	if testing.Short() {
		t.Skip("links a program for every package; left out with -short")
	}
	if raceEnabled {
		t.Skip("sizes are not measured with the race detector; run go test -run TestBudgets .")
	}
	measured := map[string]weight{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.NumCPU())
	for _, p := range list(t) {
		within := strings.TrimPrefix(p.ImportPath, module+"/")
		if p.ImportPath == module || strings.HasPrefix(within, support+"/") || strings.Contains(within, "/internal/") || p.Name == "main" && !slices.Contains(programs, within) {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			w := measure(t, p)
			mu.Lock()
			defer mu.Unlock()
			measured[within] = w
		})
	}
	wg.Wait()
	for name, w := range measured {
		switch ceiling, known := ceilings[name]; {
		case !known:
			t.Errorf("%s (%.1f MB) has no ceiling in budget_test.go", name, w.mb)
		case w.mb > ceiling:
			t.Errorf("%s weighs %.1f MB, more than its ceiling of %.1f", name, w.mb, ceiling)
		}
	}
	for name := range ceilings {
		if _, ok := measured[name]; !ok {
			t.Errorf("%s has a ceiling and is no package", name)
		}
	}
	if *update && !t.Failed() {
		writeWeights(t, measured)
	}
}

// measure links a program that imports the package, or is the package.
func measure(t *testing.T, p pkg) weight {
	var w weight
	for _, d := range append(p.Deps, p.ImportPath) {
		if first, _, _ := strings.Cut(d, "/"); strings.Contains(first, ".") {
			w.packages++
		}
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "main")
	args := []string{"build", "-ldflags=-s -w", "-o", bin}
	if p.Name == "main" {
		args = append(args, p.ImportPath)
	} else {
		target, overlay, err := overlaid(dir, strings.ReplaceAll(p.ImportPath, "/", "_"), fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", p.ImportPath))
		if err != nil {
			t.Error(err)
			return w
		}
		args = append(args, "-overlay", overlay, target)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", p.ImportPath, err, out)
		return w
	}
	fi, err := os.Stat(bin)
	if err != nil {
		t.Error(err)
		return w
	}
	w.mb = float64(int(float64(fi.Size())/1e5+0.5)) / 10
	return w
}

// overlaid makes a program of this module without writing into it: its import path, and the
// file to give to go build -overlay.
func overlaid(dir, name, code string) (target, overlay string, err error) {
	src, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	place, err := filepath.Abs(filepath.Join("internal", "weigh", name, "main.go"))
	if err != nil {
		return "", "", err
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {place: src}})
	if err == nil {
		err = errors.Join(os.WriteFile(src, []byte(code), 0o600), os.WriteFile(overlay, b, 0o600))
	}
	return module + "/internal/weigh/" + name, overlay, err
}

// writeWeights writes the table of docs/reference/weights.md, the lightest package first.
func writeWeights(t *testing.T, measured map[string]weight) {
	t.Helper()
	names := make([]string, 0, len(measured))
	for n := range measured {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(measured[a].mb, measured[b].mb), strings.Compare(a, b))
	})
	var table strings.Builder
	table.WriteString("| import | packages | size |\n|---|---|---|\n")
	for _, n := range names {
		fmt.Fprintf(&table, "| `%s` | %d | %.1f MB |\n", n, measured[n].packages, measured[n].mb)
	}
	doc, err := os.ReadFile(weightsDoc)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := []byte("<!-- weights:begin -->\n"), []byte("<!-- weights:end -->")
	i, j := bytes.Index(doc, begin), bytes.Index(doc, end)
	if i < 0 || j < i {
		t.Fatalf("%s has lost the marks of its table", weightsDoc)
	}
	if err := os.WriteFile(weightsDoc, slices.Concat(doc[:i+len(begin)], []byte(table.String()), doc[j:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

// weightsDoc has a table that is rewritten with -update.
const weightsDoc = "docs/reference/weights.md"
