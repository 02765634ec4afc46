package nodewright_test

import (
	"bytes"
	"encoding/json"
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

var update = flag.Bool("update", false, "rewrite budgets.json and the README's table by what is measured")

// ceilings are the most that a package may weigh, by what it is built on; its
// own line in budgets.json is lower. Megabytes of a stripped program.
var ceilings = map[string]float64{
	"checkpoint": 2.5, "cri/observed": 2.5, "numa": 2.5, "numa/sysfs": 2.5, "topology": 2.5, "cpumgr": 2.5, "memmgr": 2.5,
	"gc/hold": 2.5, "gc/imagegc": 13.5, "gc/containergc": 13.5, "gc/logrotate": 13.5, "gc/overcri": 20.5, "agent/fit": 20.5,
	"devicemgr": 20.5, "devicemgr/podresources": 20.5, "pluginmgr": 20.5,
	"eviction": 13.5, "eviction/notify": 13.5, "eviction/rank": 9.5, "eviction/threshold": 9.5,
	"node/oom": 13.5, "node/shutdown": 13.5, "node/shutdown/logind": 13.5, "node/stats": 13.5,
	"cgroups": 13.5, "cgroups/cgroupstest": 13.5, "cgroups/systemd": 13.5,
	"volumemgr/rmtree": 2.5, "volumemgr/usage": 2.5, "volumemgr/atomicdir": 2.5, "volumemgr/fsgroup": 2.5, "volumemgr/subpath": 2.5,
	"volumemgr/mount": 3.5, "volumemgr/mount/mounttest": 3.5, "volumemgr/scratch": 3.5, "volumemgr/tokens": 13.5,
	"volumemgr": 13.5, "volumemgr/content": 13.5, "volumemgr/emptydir": 13.5, "volumemgr/hostpath": 13.5, "volumemgr/imagevolume": 13.5,
	"volumemgr/local": 13.5, "volumemgr/nfs": 13.5, "volumemgr/plugins": 13.5, "volumemgr/plugintest": 13.5,
	"podmeta": 9.5, "podstatus": 9.5,
	"podworker": 13.5, "pleg": 13.5, "podmgr": 13.5, "statusmgr": 13.5, "probe": 13.5,
	"statusmgr/filesink": 9.5, "statusmgr/memsink": 9.5, "probe/check": 7.5, "probe/schedule": 7.5, "probe/check/grpchealth": 20.5,
	"cri": 20.5, "podspec": 20.5, "images": 20.5, "podruntime": 20.5,
	"agent/local": 20.5, "agent": 30, "examples/agent": 30,
	"dra": 20.5, "cri/crilog": 7.5, "volumemgr/claims": 13.5, "node/status": 13.5, "node/status/cristatus": 20.5,
	"kubeapi/apiclient": 15, "kubeapi/follow": 15, "kubeapi/podsource": 15, "kubeapi/statussink": 15, "kubeapi/mirror": 15,
	"kubeapi/events": 15, "kubeapi/catalog": 15, "kubeapi/tokenrequest": 15, "kubeapi/node": 15, "kubeapi/credentials": 15,
	"kubeapi/reviews": 15, "kubeapi/kubeapitest": 15, "kubeapi/metrics": 15, "kubeapi/trustbundles": 15, "kubeapi/seal": 2.5,
	"server": 20.5, "server/auth": 13.5, "server/nodelog": 7.5, "server/profile": 7.5, "server/serving": 13.5, "server/stream": 20.5, "server/usage": 13.5,
}

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

// TestBudgets measures every package that can be imported, and the agent.
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
		if p.ImportPath == module || strings.HasPrefix(within, support+"/") || strings.Contains(within, "/internal/") || p.Name == "main" && within != "examples/agent" {
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
		// Overlaid, so that the program is in this module and nothing is
		// written into it.
		src := filepath.Join(dir, "main.go")
		code := fmt.Sprintf(`package main

import (
	"fmt"
	"os"

	_ %q
)

func main() {
	b, _ := os.ReadFile("/proc/self/status")
	fmt.Printf("%%s", b)
}
`, p.ImportPath)
		if err := os.WriteFile(src, []byte(code), 0o600); err != nil {
			t.Error(err)
			return w
		}
		place, err := filepath.Abs(filepath.Join("internal", "weigh", strings.ReplaceAll(p.ImportPath, "/", "_"), "main.go"))
		if err != nil {
			t.Error(err)
			return w
		}
		overlay, err := json.Marshal(map[string]map[string]string{"Replace": {place: src}})
		if err != nil {
			t.Error(err)
			return w
		}
		if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
			t.Error(err)
			return w
		}
		target = module + "/internal/weigh/" + strings.ReplaceAll(p.ImportPath, "/", "_")
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
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- budgets:begin -->\n", "<!-- budgets:end -->"
	i, j := bytes.Index(readme, []byte(begin)), bytes.Index(readme, []byte(end))
	if i < 0 || j < i {
		t.Fatal("README.md has lost the marks of its table")
	}
	out := slices.Concat(readme[:i+len(begin)], []byte(table.String()), readme[j:])
	if err := os.WriteFile("README.md", out, 0o644); err != nil {
		t.Fatal(err)
	}
}
