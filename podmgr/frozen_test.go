package podmgr

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What a source changes under a UID is named by its field, unless running containers take it
// over, for as long as it differs from the first version.
func TestChangesUnderOneUIDAreProblems(t *testing.T) {
	env := func(value string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Containers = []v1.Container{{Name: "c", Image: "i"}, {Name: "d", Image: "i", Env: []v1.EnvVar{{Name: "A", Value: value}}}}
		}
	}
	m := newSilent(t, "file")
	told := map[string]int{}
	m.cfg.Refused = func(p *v1.Pod, why string) { told[why]++ }
	give := func(field string, edits ...func(*v1.Pod)) {
		t.Helper()
		m.merge("file", Snapshot{Pods: []*v1.Pod{with("a", edits...)}})
		problems := m.Problems()
		switch {
		case field == "" && len(problems) != 0:
			t.Errorf("problems %v", problems)
		case field != "" && (len(problems) != 1 || problems[0].Field != field || problems[0].Pod != "default/a"):
			t.Errorf("problems %v, want %s", problems, field)
		}
	}
	give("", env("1"))
	give("", env("1"), label("x"))
	give("spec.containers[1].env", env("2"))
	give("spec.containers[1].env", env("2"), label("x"))
	give("spec.containers[1].env", env("3"), label("x"))
	give("", env("1"))
	give("spec.volumes", env("1"), func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{{Name: "v"}} })
	give("spec.containers", func(p *v1.Pod) { p.Spec.Containers = []v1.Container{{Name: "c", Image: "i"}} })
	give("", env("1"), func(p *v1.Pod) {
		p.Spec.Containers[0].Image = "j"
		p.Spec.Containers[1].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
		p.Spec.ActiveDeadlineSeconds = new(int64(5))
	})
	for why, n := range told {
		if n != 1 || !strings.Contains(why, "podmeta.HashUID") {
			t.Errorf("told %d times: %s", n, why)
		}
	}
	give("spec.containers[1].env", env("2"))
	m.merge("file", Snapshot{})
	if n, left := len(m.Problems()), len(m.sources["file"].first); n != 0 || left != 0 {
		t.Errorf("%d problems and %d versions of a pod that is gone", n, left)
	}
}
