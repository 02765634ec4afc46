package nodewright_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nodewright/nodewright/internal/agentbuild"
)

var update = flag.Bool("update", false, "rewrite budgets.json and the tables of docs/weights.md by the measurements")

// ceilings are the most that a package may weigh, by what it is built on; its
// own line in budgets.json is lower. Megabytes of a stripped program.
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

// headroom is what a measured value may grow by before it counts: compilers
// and machines differ a little.
const headroom = 1.03

// weight is what a package costs its importer.
type weight struct {
	Packages int     `json:"packages"` // that are not of the standard library, its own included
	MB       float64 `json:"mb"`       // stripped size of a main that imports it
	RSS      float64 `json:"rssMB"`    // of that main at the end of its start; 0 for programs
}

const budgetsFile = "budgets.json"

// TestBudgets measures every package that can be imported, and the agents.
func TestBudgets(t *testing.T) {
	if testing.Short() {
		t.Skip("links a program for every package; left out with -short")
	}
	if raceEnabled && !*update {
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
	if t.Failed() {
		return
	}
	if *update {
		writeBudgets(t, measured)
	}
	compare(t, measured, readBudgets(t))
}

// overlaid makes a program of this module without writing into it: its import
// path, and the file to give to go build -overlay.
func overlaid(t *testing.T, dir, name, code string) (target, overlay string) {
	t.Helper()
	src, file := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	place, err := filepath.Abs(filepath.Join("internal", "weigh", name, "main.go"))
	if err != nil {
		t.Error(err)
		return "", ""
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {place: src}})
	if err == nil {
		err = errors.Join(os.WriteFile(src, []byte(code), 0o600), os.WriteFile(file, b, 0o600))
	}
	if err != nil {
		t.Error(err)
		return "", ""
	}
	return module + "/internal/weigh/" + name, file
}

// measure links the program and runs it.
func measure(t *testing.T, p pkg) weight {
	var w weight
	for _, d := range append(p.Deps, p.ImportPath) {
		if first, _, _ := strings.Cut(d, "/"); strings.Contains(first, ".") {
			w.Packages++
		}
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "main")
	target := p.ImportPath
	if p.Name != "main" {
		overlay := ""
		target, overlay = overlaid(t, dir, strings.ReplaceAll(p.ImportPath, "/", "_"), fmt.Sprintf(`package main

import (
	"fmt"
	"os"

	_ %q
)

func main() {
	b, _ := os.ReadFile("/proc/self/status")
	fmt.Printf("%%s", b)
}
`, p.ImportPath))
		if overlay == "" {
			return w
		}
	}
	args := []string{"build", "-trimpath", "-ldflags=-s -w", "-o", bin}
	if p.Name != "main" {
		args = append(args, "-overlay", filepath.Join(dir, "overlay.json"))
	} else {
		args = append(append([]string{"build"}, agentbuild.Flags()...), "-o", bin)
	}
	cmd := exec.Command("go", append(args, target)...)
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
	w.MB = round(float64(fi.Size()) / 1e6)
	if p.Name == "main" || runtime.GOOS != "linux" {
		return w
	}
	// The least of a few runs: the kernel counts in batches.
	for range 5 {
		out, err := exec.Command(bin).Output()
		if err != nil {
			t.Error(err)
			return w
		}
		_, rest, _ := strings.Cut(string(out), "VmRSS:")
		if fields := strings.Fields(rest); len(fields) > 0 {
			if kb, err := strconv.ParseFloat(fields[0], 64); err == nil && (w.RSS == 0 || kb*1024/1e6 < w.RSS) {
				w.RSS = round(kb * 1024 / 1e6)
			}
		}
	}
	return w
}

func round(mb float64) float64 { return float64(int(mb*10+0.5)) / 10 }

func compare(t *testing.T, measured, budget map[string]weight) {
	for name, w := range measured {
		b, ok := budget[name]
		ceiling, known := ceilings[name]
		switch {
		case !known:
			t.Errorf("%s has no ceiling in budget_test.go", name)
		case !ok:
			t.Errorf("%s has no line in %s; make budgets writes it", name, budgetsFile)
		case w.MB > ceiling:
			t.Errorf("%s weighs %.1f MB, more than its ceiling of %.1f", name, w.MB, ceiling)
		case w.MB > b.MB*headroom+0.05:
			t.Errorf("%s grew from %.1f to %.1f MB; if that is worth it, make budgets", name, b.MB, w.MB)
		case w.Packages > b.Packages:
			t.Errorf("%s imports %d packages, up from %d; if that is worth it, make budgets", name, w.Packages, b.Packages)
		case w.RSS > b.RSS*1.15+1:
			t.Errorf("%s starts with %.1f MB, up from %.1f; if that is worth it, make budgets", name, w.RSS, b.RSS)
		}
	}
}

func readBudgets(t *testing.T) map[string]weight {
	b, err := os.ReadFile(budgetsFile)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]weight{}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s: %v", budgetsFile, err)
	}
	return out
}

func writeBudgets(t *testing.T, measured map[string]weight) {
	b, err := json.MarshalIndent(measured, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(budgetsFile, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| import | packages | size | RSS | ceiling |\n|---|---|---|---|---|\n")
	names := make([]string, 0, len(measured))
	for n := range measured {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := int(10*measured[a].MB) - int(10*measured[b].MB); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, n := range names {
		w := measured[n]
		rss := fmt.Sprintf("%.1f MB", w.RSS)
		if w.RSS == 0 {
			rss = ""
		}
		fmt.Fprintf(&table, "| `%s` | %d | %.1f MB | %s | %.1f MB |\n", n, w.Packages, w.MB, rss, ceilings[n])
	}
	replaceTable(t, "budgets", table.String())
}

// replaceTable puts a table between its marks in docs/weights.md.
func replaceTable(t *testing.T, name, table string) {
	t.Helper()
	doc, err := os.ReadFile("docs/weights.md")
	if err != nil {
		t.Fatal(err)
	}
	begin, end := []byte("<!-- "+name+":begin -->\n"), []byte("<!-- "+name+":end -->")
	i, j := bytes.Index(doc, begin), bytes.Index(doc, end)
	if i < 0 || j < i {
		t.Fatalf("docs/weights.md has lost the marks of its table of %s", name)
	}
	out := slices.Concat(doc[:i+len(begin)], []byte(table), doc[j:])
	if err := os.WriteFile("docs/weights.md", out, 0o644); err != nil {
		t.Fatal(err)
	}
}
