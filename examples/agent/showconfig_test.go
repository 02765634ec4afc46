package main

import (
	"flag"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/kubeletconfig"
)

// The configuration is that of the agent at the socket, or of a file.
func TestConfigCommand(t *testing.T) {
	file := filepath.Join(files(t, map[string]string{"k.yaml": configHead + "maxPods: 7\n"}), "k.yaml")
	flags := kubeletconfig.NewFlags()
	fs := flag.NewFlagSet("agent run", flag.ContinueOnError)
	flags.Bind(fs)
	if err := fs.Parse([]string{"--config", file, "--pod-manifest-path", "/m"}); err != nil {
		t.Fatal(err)
	}
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	l, err := local.Listen(filepath.Join(root, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: configHandler(append(flags.Values(), conf.Values()...)), ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	for line, want := range map[string]string{
		"config --changed": "FIELD           VALUE   ORIGIN\n--config        FILE    --config\nmaxPods         7       FILE:3\nstaticPodPath   /m      --pod-manifest-path\n",
		"config --changed --no-headers --config FILE": "maxPods   7   FILE:3\n",
		"config --changed -o yaml --config FILE":      "- field: maxPods\n  origin: FILE:3\n  value: 7\n",
		"config --changed -o json --config FILE":      "[\n  {\n    \"field\": \"maxPods\",\n    \"value\": 7,\n    \"origin\": \"FILE:3\"\n  }\n]\n",
	} {
		stdout, stderr, code := ask(t, root, strings.ReplaceAll(line, "FILE", file))
		if strings.HasPrefix(want, "FIELD") { // the width of the columns depends on the file's name
			stdout, want = squeeze(stdout), squeeze(want)
		}
		if want = strings.ReplaceAll(want, "FILE", file); code != 0 || stderr != "" || stdout != want {
			t.Errorf("agent %s: exit %d, %q, %q; want %q", line, code, stdout, stderr, want)
		}
	}
	none := serveAgent(t, &fakeAgent{})
	for line, want := range map[string]string{
		"config": "this agent does not report its configuration", "config -o wide": `-o "wide": want json or yaml`, "config all": `config takes no argument, got "all"`,
		"config --config /none/k.yaml": "/none/k.yaml: no such file or directory",
	} {
		if stdout, stderr, code := ask(t, none, line); code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("agent %s: exit %d, %q, %q; want %q", line, code, stdout, stderr, want)
		}
	}
}

// squeeze leaves one blank between words.
func squeeze(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(out, "\n")
}
