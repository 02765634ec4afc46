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
	"checkpoint": 2.5, "cri/observed": 2.5, "numa": 2.5, "topology": 2.5, "cpumgr": 2.5, "memmgr": 2.5,
	"gc": 13.5, "fit": 21, "devicemgr": 21, "pluginmgr": 21, "eviction": 13.5, "node": 13.5, "cgroups": 13.5,
	"volumemgr/mount": 3.5, "volumemgr": 13.5, "volumemgr/plugins": 13.5, "volumemgr/plugintest": 13.5,
	"podmeta": 9.5, "podstatus": 9.5, "podworker/serial": 2.5,
	"podworker": 13.5, "pleg": 13.5, "podmgr": 14, "statusmgr": 13.5, "probe": 13.5,
	"cri": 21, "cri/crilog": 7.5, "podspec": 21, "images": 21, "podruntime": 21, "csi": 21, "dra": 21,
	"localcri": 25, "localcri/image": 21, "network": 6, "network/networktest": 6, "network/cni": 9, "network/bridge": 9,
	"kubeapi": 15, "kubeapi/podsync": 15, "localapi": 15, "server": 21, "kubeletconfig": 15,
	"agent/part": 21, "agent/local": 21, "agent": 30, "agent/resources": 22, "agent/pressure": 22, "agent/lifecycle": 22, "agent/csi": 22,
	"nodeagent": 24, "nodeagent/cluster": 25.5, "nodeagent/csi": 25.5, "nodeagent/localcri": 31, "nodeagent/localapi": 25.5, "nodeagent/hollow": 29,
	"agent/agenttest": 30, "cri/critest": 21, "kubeapi/kubeapitest": 15,
	"examples/agent": 39, "examples/edge": 27,
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
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-o", bin}
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
