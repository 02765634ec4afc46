package nodewright_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/agentbuild"
)

// makers are the parts of nodeagent.Standard, in its order.
var makers = []string{
	"Stats", "Collection", "Eviction", "Preemption", "Shutdown", "Devices", "Placement", "Claims", "Plugins", "PodResources",
	"Resize", "UserNamespaces", "Tokens", "Mirrors", "OOM", "Swap", "HostSetup",
}

// services are those of nodeagent.StandardServices.
var services = []string{"LocalSocket", "NodeAPI", "Healthz", "Systemd"}

// TestPartWeights measures what a node gains by leaving something out, and writes
// the table of docs/weights.md. It links a program for each, and so does nothing without
// -update.
func TestPartWeights(t *testing.T) {
	if !*update {
		t.Skip("links some twenty programs; make budgets runs it")
	}
	all := weigh(t, makers, services, true)
	var table strings.Builder
	table.WriteString("| a node | size | less |\n|---|---|---|\n")
	row := func(name string, mb float64) { fmt.Fprintf(&table, "| %s | %.2f MB | %.2f MB |\n", name, mb, all-mb) }
	row("of `nodeagent` with everything", all)
	row("that stands alone (no `nodeagent/cluster`)", weigh(t, makers, services, false))
	row("without services", weigh(t, makers, nil, true))
	for _, m := range makers {
		rest := slices.DeleteFunc(slices.Clone(makers), func(o string) bool { return o == m })
		row("without `nodeagent."+m+"`", weigh(t, rest, services, true))
	}
	devices := []string{"Devices", "Claims", "Plugins", "PodResources"}
	row("without devices, claims and all of their plugins",
		weigh(t, slices.DeleteFunc(slices.Clone(makers), func(o string) bool { return slices.Contains(devices, o) }), services, true))
	row("alone, without parts and services", weigh(t, nil, nil, false))
	row("with volumes of CSI drivers too (`nodeagent/csi`)", weigh(t, makers, services, true, "csi.Volumes"))
	if !t.Failed() {
		replaceTable(t, "parts", table.String())
	}
}

// weigh links a node with these parts and services, and with parts of packages below
// nodeagent (PACKAGE.NAME), and returns its stripped size in MB.
func weigh(t *testing.T, parts, services []string, cluster bool, more ...string) float64 {
	t.Helper()
	list := func(names []string) []string {
		var out []string
		for _, n := range names {
			out = append(out, "nodeagent."+n)
		}
		return out
	}
	imports, join := "", ""
	for _, m := range more {
		pkg, _, _ := strings.Cut(m, ".")
		imports += fmt.Sprintf("\n\t%q", module+"/nodeagent/"+pkg)
	}
	if cluster {
		imports, join = imports+fmt.Sprintf("\n\t%q", module+"/nodeagent/cluster"), "Join: cluster.Join,"
	}
	code := fmt.Sprintf(`package main

import (
	"context"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	%q%s
	%q
)

func main() {
	ctx := context.Background()
	log := zap.NewExample()
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{File: os.Args[1]})
	if err != nil {
		log.Fatal(err.Error())
	}
	n, err := nodeagent.New(ctx, nodeagent.Options{
		Config: conf, Parts: []nodeagent.Maker{%s}, Services: []nodeagent.Service{%s}, %s
		Log: log, Metrics: prometheus.NewRegistry(),
	})
	if err == nil {
		err = n.Run(ctx)
	}
	if err != nil {
		log.Fatal(err.Error())
	}
}
`, module+"/kubeletconfig", imports, module+"/nodeagent", strings.Join(append(list(parts), more...), ", "), strings.Join(list(services), ", "), join)
	dir := t.TempDir()
	bin := filepath.Join(dir, "main")
	target, overlay := overlaid(t, dir, "node", code)
	args := append(append([]string{"build"}, agentbuild.Flags()...), "-overlay", overlay, "-o", bin, target)
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fi, err := os.Stat(bin)
	if err != nil {
		t.Fatal(err)
	}
	return float64(fi.Size()) / 1e6
}
