package peers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// TestClients runs clients against the API of an agent alone: Helm 4, stern and the JavaScript
// client. What `make peers` could not build or install is skipped.
func TestClients(t *testing.T) {
	checkouts(t)
	kubectl := program(t, "peers-kubectl")
	files := append(ofBusybox(t), sampleimage.File{Path: "/bin/entry", Mode: 0o755, Data: []byte("#!/bin/sh\n[ \"$1\" = env ] && exec env\nexec \"$@\"\n")})
	image := serve(t, map[string]image{"box:1": {files, v1.Config{Entrypoint: []string{"/bin/entry"}, Cmd: []string{"true"}}}}) + "/box:1"
	config := alone(t, kubectl)
	run := func(t *testing.T, name string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+config, "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", filepath.Base(name), args, err, out)
		}
		return string(out)
	}
	// The chart does not pull.
	run(t, kubectl, "run", "box", "--image="+image, "--restart=Never", "--", "sh", "-c", "echo first; echo last")
	run(t, kubectl, "wait", "pod/box", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=2m")

	built := func(t *testing.T, name string) string {
		t.Helper()
		path, err := filepath.Abs(filepath.Join("..", "..", "build", name))
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			t.Skip(err)
		}
		return path
	}
	t.Run("helm 4", func(t *testing.T) {
		helm := built(t, "bin/helm4")
		chart := " ../../examples/agent/testdata/chart --set image=" + image
		for _, step := range []struct{ args, says string }{
			{"install demo --wait" + chart, "STATUS: deployed"},
			{"test demo", "Succeeded"},
			{"upgrade demo --wait --set color=red" + chart, "REVISION: 2"},
			{"rollback demo 1 --wait", "Rollback was a success"},
			{"upgrade demo --server-side=false --wait --set color=green" + chart, "REVISION: 4"},
			{"history demo", "Rollback to 1"},
			{"list", "deployed"},
			{"uninstall demo --wait", "uninstalled"},
		} {
			if out := run(t, helm, strings.Fields(step.args)...); !strings.Contains(out, step.says) {
				t.Errorf("helm %s: %s, want %s", step.args, out, step.says)
			}
		}
	})
	t.Run("stern", func(t *testing.T) {
		if out := run(t, built(t, "bin/stern"), "box", "--no-follow", "--color=never"); !strings.Contains(out, "box box first\n") || !strings.Contains(out, "box box last\n") {
			t.Error(out)
		}
	})
	t.Run("javascript", func(t *testing.T) {
		// Node.js looks for modules beside the program.
		beside := filepath.Dir(built(t, "peers-js/node_modules"))
		text, err := os.ReadFile(filepath.Join("testdata", "client.mjs"))
		if err == nil {
			err = os.WriteFile(filepath.Join(beside, "client.mjs"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if out := run(t, "node", filepath.Join(beside, "client.mjs"), config, image); !strings.Contains(out, "all done") {
			t.Error(out)
		}
	})
}
