package podmgr

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/podmeta"
)

const (
	ownUID  = types.UID("00000000000000000000000000000001")
	theirs  = types.UID("ef2c2ee52122c55557c1c72ad0f1c7d4")
	another = types.UID("9d93b3e88cca30f6193e87b0b2f493ed")
)

func TestAdopted(t *testing.T) {
	changed := time.Unix(1000, 0)
	at := func(uid types.UID, seconds int64) Found { return Found{UID: uid, Since: time.Unix(seconds, 0)} }
	for _, c := range []struct {
		name   string
		before types.UID
		found  []Found
		want   types.UID
	}{
		{name: "nothing runs", want: ownUID},
		{name: "one of this content", found: []Found{at(theirs, 1001)}, want: theirs},
		{name: "one of an earlier content", found: []Found{at(theirs, 999)}, want: ownUID},
		{name: "one of the same moment", found: []Found{at(theirs, 1000)}, want: ownUID},
		{name: "its own beside it", found: []Found{at(theirs, 1001), at(ownUID, 900)}, want: ownUID},
		{name: "two of them", found: []Found{at(theirs, 1001), at(another, 1002)}, want: ownUID},
		{name: "one with a UID that leads elsewhere", found: []Found{at("../../../../../../../etc/passwd00", 1001)}, want: ownUID},
		{name: "one with a UID that somebody wrote", found: []Found{at("mine", 1001)}, want: ownUID},
		{name: "adopted before, and gone", before: theirs, want: theirs},
		{name: "adopted before, and the file was touched", before: theirs, found: []Found{at(theirs, 999)}, want: theirs},
		{name: "adopted before, and made anew by a kubelet", before: theirs, found: []Found{at(another, 1001)}, want: another},
		{name: "adopted before, and something old runs", before: theirs, found: []Found{at(another, 999)}, want: ownUID},
		{name: "adopted before by a damaged record", before: "../x", want: ownUID},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := adopted(ownUID, changed, c.before, c.found); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// A pod that a kubelet made of a file keeps its UID for as long as the file says the
// same, over touches and restarts.
func TestPodOfAKubeletKeepsItsUID(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	kept := &checkpointtest.Disk{}
	asked := 0
	life := func(found ...Found) *directory {
		s, err := Directory(DirectoryConfig{
			Path: filepath.Dir(file), NodeName: "N1", Rescan: time.Hour, Memory: kept,
			Found: func(_ context.Context, p *v1.Pod) ([]Found, error) {
				if asked++; p.Namespace != "default" || p.Name != "a-n1" {
					t.Errorf("asked for %s/%s", p.Namespace, p.Name)
				}
				if len(found) == 0 {
					return nil, errors.New("the runtime is away")
				}
				return found, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return s.(*directory)
	}
	uid := func(d *directory) types.UID {
		t.Helper()
		d.scan(t.Context())
		d.remember()
		s := d.snapshot()
		if len(s.Pods) != 1 || s.Pods[0].Annotations[podmeta.AnnotationHash] != string(s.Pods[0].UID) {
			t.Fatalf("got %+v", s)
		}
		return s.Pods[0].UID
	}
	replace(t, file, podYAML("a", ""))
	running := Found{UID: theirs, Since: time.Now().Add(time.Hour)}

	d := life(running)
	if got := uid(d); got != theirs {
		t.Fatalf("got %s, want that of the kubelet", got)
	}
	replace(t, file, podYAML("a", ""))
	if got := uid(d); got != theirs || asked != 1 {
		t.Errorf("touched: got %s after %d questions, want that of the kubelet after one", got, asked)
	}
	d = life()
	if got := uid(d); got != theirs {
		t.Errorf("after a restart without a runtime: got %s, want that of the kubelet", got)
	}
	replace(t, file, "{ bad")
	if got := uid(life()); got != theirs {
		t.Errorf("broken: got %s, want that of the kubelet", got)
	}
	replace(t, file, podYAML("a", ", labels: {new: \"1\"}"))
	if got := uid(d); got == theirs {
		t.Error("a pod of another content has the UID of the kubelet's")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	d.scan(t.Context())
	replace(t, file, podYAML("a", ""))
	if got := uid(d); got == theirs {
		t.Error("a file that was removed and made again brings back the UID of the kubelet's")
	}
}
