package nodeagent_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// small is a node with one part, and without services.
const small = `package main

import (
	"context"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
)

func main() {
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{})
	if err != nil {
		panic(err)
	}
	n, err := nodeagent.New(context.Background(), nodeagent.Options{Config: conf, Parts: []nodeagent.Maker{nodeagent.Stats}})
	if err != nil {
		panic(err)
	}
	panic(n.Run(context.Background()))
}
`

// A program has the code of the parts and services that it names, and no other.
func TestWhatIsNotNamedIsNotLinked(t *testing.T) {
	if testing.Short() {
		t.Skip("links a program; left out with -short")
	}
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "small")
	// Overlaid, so that the program is in this module and nothing is written into it.
	place, err := filepath.Abs(filepath.Join("..", "internal", "weigh", "small", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {place: src}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"main.go": small, "overlay.json": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("build", "-trimpath", "-overlay", filepath.Join(dir, "overlay.json"), "-o", bin, "../internal/weigh/small")
	symbols := run("tool", "nm", bin)
	const module = "github.com/nodewright/nodewright/"
	for _, want := range []string{"agent/pressure.NewStats", "agent.New"} {
		if !strings.Contains(symbols, " "+module+want+"\n") {
			t.Errorf("%s is not linked", want)
		}
	}
	for _, not := range []string{
		"agent/pressure.NewCollection", "agent/pressure.NewEviction", "agent/pressure.NewOOMKills", "agent/pressure.NewPreemption",
		"agent/resources.", "agent/lifecycle.",
		"agent/local.Handler", "server.New", "devicemgr.New", "dra.New", "fit.NewPlacement", "kubeapi/",
	} {
		if strings.Contains(symbols, " "+module+not) {
			t.Errorf("%s is linked, and nobody names it", not)
		}
	}
}
