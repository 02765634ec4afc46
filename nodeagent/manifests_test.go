package nodeagent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podspec"
)

// Static pods that run are found by their name, if a kubelet made them from a file and
// their containers are those of the spec.
func TestStaticPodsThatRun(t *testing.T) {
	const uid, own = "ef2c2ee52122c55557c1c72ad0f1c7d4", "0f2c2ee52122c55557c1c72ad0f1c7d4"
	spec := v1.Container{Name: "main", Image: "example.com/i:1"}
	for _, c := range []struct {
		name    string
		change  func(s *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig)
		away    bool // the runtime, at first
		stopped bool
		dirs    []string // of pods; the kubelet's
		want    int
	}{
		{name: "a kubelet's", want: 1},
		{name: "a kubelet's, and the runtime is late", away: true, want: 1},
		{name: "one that has stopped", stopped: true},
		{name: "no directory of a static pod", dirs: []string{"67ab3f63-6a04-4ad7-a7ee-8d3a8e6b3a3d"}},
		{name: "this agent's own", dirs: []string{uid, own}},
		{name: "another name", change: func(s *runtimeapi.PodSandboxConfig, _ *runtimeapi.ContainerConfig) { s.Metadata.Name = "b-n1" }},
		{name: "another namespace", change: func(s *runtimeapi.PodSandboxConfig, _ *runtimeapi.ContainerConfig) { s.Metadata.Namespace = "x" }},
		{name: "of the API server", change: func(s *runtimeapi.PodSandboxConfig, _ *runtimeapi.ContainerConfig) {
			s.Annotations[podmeta.AnnotationSource] = "api"
		}},
		{name: "another hash", change: func(s *runtimeapi.PodSandboxConfig, _ *runtimeapi.ContainerConfig) {
			s.Annotations[podmeta.AnnotationHash] = "00000000000000000000000000000001"
		}},
		{name: "another image", change: func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
			c.Annotations[cri.AnnotationHash] = podspec.Hash(&v1.Container{Name: "main", Image: "example.com/i:2"})
		}},
		{name: "a container that is not in the spec", change: func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
			c.Labels[cri.LabelContainerName] = "more"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New()
				rt.AddImage(spec.Image)
				sandbox := &runtimeapi.PodSandboxConfig{
					Metadata:    &runtimeapi.PodSandboxMetadata{Name: "a-n1", Namespace: "default", Uid: uid},
					Labels:      map[string]string{cri.LabelPodUID: uid},
					Annotations: map[string]string{podmeta.AnnotationSource: "file", podmeta.AnnotationHash: uid},
				}
				container := &runtimeapi.ContainerConfig{
					Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: spec.Image}, Command: []string{"sleep", "forever"},
					Labels:      map[string]string{cri.LabelContainerName: "main", cri.LabelPodUID: uid},
					Annotations: map[string]string{cri.AnnotationHash: podspec.Hash(&spec)},
				}
				if c.change != nil {
					c.change(sandbox, container)
				}
				id, err := rt.RunPodSandbox(t.Context(), sandbox, "")
				if err != nil {
					t.Fatal(err)
				}
				made, err := rt.CreateContainer(t.Context(), id, container, sandbox)
				if err := errors.Join(err, rt.StartContainer(t.Context(), made)); err != nil {
					t.Fatal(err)
				}
				if c.stopped {
					if err := rt.StopPodSandbox(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				}
				if c.away {
					rt.FailNext("ListPodSandbox", 3, errors.New("not yet"))
				}
				dir := t.TempDir()
				if c.dirs == nil {
					c.dirs = []string{uid}
				}
				for _, name := range c.dirs {
					if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a-n1", UID: own}, Spec: v1.PodSpec{Containers: []v1.Container{spec}}}
				s := &staticPods{runtime: rt, dir: dir, log: zap.NewNop()}
				found, err := s.find(t.Context(), pod)
				if err != nil || len(found) != c.want || c.want > 0 && (found[0].UID != uid || found[0].Since.IsZero()) {
					t.Errorf("found %+v, %v, want %d", found, err, c.want)
				}
			})
		})
	}
}

// A source that ends while the runtime is away does not wait for it.
func TestStaticPodsWithoutRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New()
		rt.Fail("ListPodSandbox", errors.New("away"))
		ctx, cancel := context.WithTimeout(t.Context(), 5*staticAgain)
		defer cancel()
		dir := t.TempDir()
		s := &staticPods{runtime: rt, dir: dir, log: zap.NewNop()}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "new"}}
		if found, err := s.find(ctx, pod); err != nil || len(found) > 0 {
			t.Errorf("found %v, %v where no kubelet was", found, err)
		}
		if err := os.Mkdir(filepath.Join(dir, "ef2c2ee52122c55557c1c72ad0f1c7d4"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := s.find(ctx, pod); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
	})
}
