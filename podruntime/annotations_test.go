package podruntime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/seconds"
	"github.com/nodewright/nodewright/podlife"
)

// What is read back of a container is whatever the runtime says of it.
func FuzzAnnotations(f *testing.F) {
	for _, s := range []string{
		"", "30", "-1", "9223372036854775807", "1e9", `{"exec":{"command":["x"]}}`, `{"sleep":{"seconds":9223372036854775807}}`, `[{"name":"http","containerPort":80}]`,
		`{"limits":{"cpu":"1","memory":"64Mi"},"requests":{"cpu":"1"}}`, `{"limits":{"cpu":"1e-99999999"}}`, `{"limits":{"cpu":"1e99999999999999999999"}}`,
		`{"limits":{"cpu":1}}`, `{"limits":{"cpu":"1\u0065-99999999"}}`, strings.Repeat("[", 1<<17),
	} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		o := &observed.Container{ID: "id", Name: "c", Annotations: map[string]string{
			cri.AnnotationPodDeletionGracePeriod: a, cri.AnnotationPodTerminationGracePeriod: b, cri.AnnotationPreStop: a, cri.AnnotationPorts: b,
			cri.AnnotationTerminationMessagePath: a, cri.AnnotationTerminationMessagePolicy: b, cri.AnnotationResources: a,
		}}
		if g := podlife.Grace(restoredPod(o), restored(o), podlife.Cause{}); g < 0 || g > seconds.Max {
			t.Errorf("grace period %v", g)
		}
		if r, known := MadeWith(o); known {
			for _, l := range []v1.ResourceList{r.Limits, r.Requests} {
				for name, q := range l {
					if q.String() == "" {
						t.Errorf("quantity of %s is empty", name)
					}
				}
			}
		}
	})
}

// A quantity whose digits would take the life of the machine to write out is
// not known.
func TestQuantitiesOfAStranger(t *testing.T) {
	for written, known := range map[string]bool{
		`{"limits":{"cpu":"500m","memory":"64Mi"}}`: true, `{}`: true, `{"requests":{"cpu":"1e3"}}`: true, `{"requests":{"storage":"2E"}}`: true,
		`{"limits":{"cpu":"1e-99999999"}}`: false, `{"limits":{"cpu":"1e31"}}`: false, `{"limits":{"cpu":"` + strings.Repeat("9", 100) + `"}}`: false,
		``: false, `x`: false, `{"limits":{"cpu":"one"}}`: false,
	} {
		start := time.Now()
		_, ok := MadeWith(&observed.Container{Annotations: map[string]string{cri.AnnotationResources: written}})
		if ok != known || time.Since(start) > time.Minute {
			t.Errorf("%.40s: known %v after %v, want %v", written, ok, time.Since(start), known)
		}
	}
}

// The path of a log is the runtime's word as well: no other pod's logs go.
func TestLogsOfOthersStay(t *testing.T) {
	logs := t.TempDir()
	m, err := New(Config{Runtime: newMemory(), Images: present{}, PodLogsDir: logs})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"ns_a_ua/c", "ns_b_ub/c"} {
		if err := os.MkdirAll(filepath.Join(logs, d), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"0.log", "0.log.1", "1.log", "0.logger"} {
			if err := os.WriteFile(filepath.Join(logs, d, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(path string) (left int) {
		t.Helper()
		c := &observed.Container{ID: "x", LogPath: filepath.Join(logs, "x") + "/../" + path, Labels: map[string]string{cri.LabelPodUID: "ua"}}
		if err := m.removeLogs(t.Context(), c); err != nil {
			t.Error(err)
		}
		files, _ := filepath.Glob(filepath.Join(logs, "*/*/*"))
		return len(files)
	}
	for _, path := range []string{"ns_b_ub/c/0.log", "*/*/0.log", "ns_a_ua/*/0.log", "ns_a_ua/../ns_b_ub/c/0.log", ".", "ns_a_ua"} {
		if n := remove(path); n != 8 {
			t.Errorf("%s: %d files are left of 8", path, n)
		}
	}
	if n := remove("ns_a_ua/c/0.log"); n != 6 {
		t.Errorf("%d files are left, want 6", n)
	}
}
