package agent_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podmgr"
)

// tree lists what is below a directory.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A pod whose names would lead out of its directories makes and removes nothing
// there, while it is there and when it goes. One of an API server is rejected;
// of other sources it is a problem, and no pod.
func TestNamesOfPodsDoNotEscape(t *testing.T) {
	t.Run("static", func(t *testing.T) { testNamesOfPodsDoNotEscape(t, podmgr.Static) })
	t.Run("API", func(t *testing.T) { testNamesOfPodsDoNotEscape(t, podmgr.API) })
}

func testNamesOfPodsDoNotEscape(t *testing.T, kind podmgr.Kind) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.kind = kind
		victim := filepath.Join(n.root, "victim")
		for _, dir := range []string{"volumes", "containers/c", "subPaths"} {
			if err := os.MkdirAll(filepath.Join(victim, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for name, uid := range map[string]string{"up": "../../victim", "far": "../../escaped", "self": ".", "parent": "..", "slash": "a/b", "none": ""} {
			p := newPod(name, runs("c"))
			p.UID = types.UID(uid)
			n.want = append(n.want, p)
		}
		container := newPod("container", runs("../../../../victim/containers/d"))
		volume := newPod("volume", runs("c"))
		volume.Spec.Volumes = []v1.Volume{{Name: "../../../../victim/x", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		space := newPod("space", runs("c"))
		space.Namespace = "../victim"
		n.want = append(n.want, container, volume, space, newPod("good", runs("c")))
		before := tree(t, victim)
		l := n.start()
		settle()
		l.wantPhase("good", v1.PodRunning)
		for _, name := range []string{"up", "far", "self", "parent", "slash", "container", "volume", "space"} {
			switch p := l.pod(name); {
			case kind == podmgr.Static && p != nil,
				kind == podmgr.API && (p == nil || p.Status.Phase != v1.PodFailed || p.Status.Reason != "InvalidPod"):
				t.Errorf("pod %s: %+v", name, p)
			}
		}
		n.want = nil
		l.tell()
		time.Sleep(5 * time.Minute)
		settle()
		n.wantNothingLeft()
		if after := tree(t, victim); !slices.Equal(after, before) {
			t.Errorf("there is %v, and was %v", after, before)
		}
		entries, err := os.ReadDir(n.root)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !slices.Contains([]string{"victim", "root", "logs", "containers"}, e.Name()) {
				t.Errorf("%s was made", e.Name())
			}
		}
		l.stop()
	})
}

// A runtime that would pass over supplementalGroupsPolicy gets no pod that counts
// on it.
func TestGroupsPolicyAtAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ignores := range []bool{false, true} {
			n := newNode(t)
			if ignores {
				n.rt.IgnoreGroupsPolicy()
			}
			strict := v1.SupplementalGroupsPolicyStrict
			p := newPod("strict", runs("c"))
			p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &strict}
			n.want = []*v1.Pod{p, newPod("other", runs("c"))}
			l := n.start()
			settle()
			l.wantPhase("other", v1.PodRunning)
			if ignores {
				l.wantPhase("strict", v1.PodFailed)
				if reason := l.pod("strict").Status.Reason; reason != "SupplementalGroupsPolicyNotSupported" {
					t.Errorf("reason %q", reason)
				}
			} else {
				l.wantPhase("strict", v1.PodRunning)
			}
			l.stop()
		}
	})
}
