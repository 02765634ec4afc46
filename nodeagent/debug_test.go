package nodeagent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/testrun"
)

// A pod of a manifest gets ephemeral containers, also when its file is read again, and its successor
// has none.
func TestDebugAddsContainersToPodsOfManifests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := virtual(t, "fileCheckFrequency: 1s\n")
		o.Config.StaticPodPath = t.TempDir()
		write := func(image string) {
			text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: " + image + "}]}\n"
			if err := os.WriteFile(filepath.Join(o.Config.StaticPodPath, "web.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("a:1")
		n, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, n.Run)
		<-n.Ready()
		names := func() (all []string) {
			time.Sleep(time.Minute)
			for _, p := range n.Pods() {
				for i := range p.Spec.EphemeralContainers {
					all = append(all, p.Spec.EphemeralContainers[i].Name)
				}
			}
			return all
		}
		if got := names(); got != nil {
			t.Errorf("containers %q before the first was added", got)
		}
		pod := n.Pods()[0]
		for _, r := range []local.DebugRequest{{Name: "one", Image: "tools:1", Target: "c"}, {Name: "two", Image: "tools:1", Command: []string{"sh"}, Stdin: true, TTY: true}} {
			if err := n.Debug(t.Context(), n.Pods()[0], r); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if got := names(); !slices.Equal(got, []string{"one", "two"}) {
			t.Errorf("containers %q", got)
		}
		for want, r := range map[string]local.DebugRequest{
			"spec.ephemeralContainers[2].image":               {Name: "x"},
			"spec.ephemeralContainers[2].name":                {Name: "c", Image: "i"},
			"spec.ephemeralContainers[2].targetContainerName": {Name: "x", Image: "i", Target: "none"},
		} {
			if err := n.Debug(t.Context(), n.Pods()[0], r); !errors.Is(err, local.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v; want %s", r, err, want)
			}
		}
		write("a:2")
		if got := names(); got != nil {
			t.Errorf("the successor has %q", got)
		}
		if err := n.Debug(t.Context(), pod, local.DebugRequest{Name: "x", Image: "i"}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("of a pod that is gone: %v", err)
		}
		foreign := &v1.Pod{Spec: *pod.Spec.DeepCopy()}
		foreign.Namespace, foreign.Name, foreign.UID = "default", "other", "u"
		if err := n.Debug(t.Context(), foreign, local.DebugRequest{Name: "x", Image: "i"}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "kubectl debug") {
			t.Errorf("of a pod of no manifest: %v", err)
		}
		stop()
	})
}
