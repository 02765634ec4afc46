package localapi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/localapi/store"
)

// family makes ConfigMaps; each line is a name and those of its owners, which block.
func (a *api) family(lines ...string) {
	a.t.Helper()
	uids := map[string]types.UID{}
	for _, line := range lines {
		names := strings.Fields(line)
		c := configMap(names[0], "1")
		for _, o := range names[1:] {
			yes := true
			uid, ok := uids[o]
			if !ok {
				uid = "nobody's"
			}
			c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o, UID: uid, BlockOwnerDeletion: &yes})
		}
		uids[names[0]] = must[v1.ConfigMap](a, "POST", configMaps, asJSON, c).UID
	}
}

// names are those of the ConfigMaps that there are, with a - where they end.
func (a *api) names() string {
	a.t.Helper()
	var out []string
	for _, c := range must[v1.ConfigMapList](a, "GET", configMaps, "", nil).Items {
		name := c.Name
		if c.DeletionTimestamp != nil {
			name += "-"
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// What is owned goes with its owner, as far as who deletes that wants it.
func TestOwners(t *testing.T) {
	for _, c := range []struct {
		name   string
		family []string
		policy string
		left   string
	}{
		{"nobody asks", []string{"a", "b a", "c b", "other"}, "", "other"},
		{"background", []string{"a", "b a", "c b", "other"}, "Background", "other"},
		{"foreground", []string{"a", "b a", "c b", "other"}, "Foreground", "other"},
		{"orphans", []string{"a", "b a", "c b", "other"}, "Orphan", "b c other"},
		{"two owners", []string{"a", "o", "b a o"}, "", "b o"},
		{"two owners, foreground", []string{"a", "o", "b a o"}, "Foreground", "b o"},
		{"an owner of two", []string{"a", "b a", "c a b"}, "Foreground", ""},
		{"an owner that was never there", []string{"a", "b nobody"}, "Orphan", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := start(t, &store.Memory{})
			a.family(c.family...)
			if c.policy == "" {
				must[metav1.Status](a, "DELETE", configMaps+"/a", "", nil)
			} else {
				must[metav1.Status](a, "DELETE", configMaps+"/a", asJSON, fmt.Sprintf(`{"propagationPolicy":%q}`, c.policy))
			}
			if got := a.names(); got != c.left {
				t.Errorf("left are %q; want %q", got, c.left)
			}
			for _, o := range must[v1.ConfigMapList](a, "GET", configMaps, "", nil).Items {
				if slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Name == "a" }) {
					t.Errorf("%s still names a: %+v", o.Name, o.OwnerReferences)
				}
			}
		})
	}
	a := start(t, &store.Memory{})
	a.family("a")
	a.refused("DELETE", configMaps+"/a?propagationPolicy=Sideways", "", "", 422, metav1.StatusReasonInvalid, "propagationPolicy")
}

// An owner waits for a dependent that has to end in order, if that says so, and goes with it; in a circle nobody waits.
func TestOwnersWait(t *testing.T) {
	a := start(t, &store.Memory{})
	a.family("a", "b a")
	owner := must[v1.ConfigMap](a, "GET", configMaps+"/a", "", nil)
	yes := true
	p := pod("web")
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: owner.UID, BlockOwnerDeletion: &yes}}
	made := must[v1.Pod](a, "POST", pods, asJSON, p)
	if c := must[v1.ConfigMap](a, "DELETE", configMaps+"/a?propagationPolicy=Foreground", "", nil); c.DeletionTimestamp == nil || len(c.Finalizers) != 1 {
		t.Errorf("%+v", c.ObjectMeta)
	}
	if got := a.names(); got != "a-" {
		t.Errorf("left are %q", got)
	}
	if p := must[v1.Pod](a, "GET", pods+"/web", "", nil); p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 {
		t.Errorf("%+v", p.ObjectMeta)
	}
	if err := a.Delete(t.Context(), &made); err != nil {
		t.Fatal(err)
	}
	if got := a.names(); got != "" {
		t.Errorf("left are %q", got)
	}
	a.family("a", "b a", "c b")
	last := must[v1.ConfigMap](a, "GET", configMaps+"/c", "", nil)
	must[v1.ConfigMap](a, "PATCH", configMaps+"/a", "application/merge-patch+json",
		fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":%q,"blockOwnerDeletion":true}]}}`, last.UID))
	must[metav1.Status](a, "DELETE", configMaps+"/a?propagationPolicy=Foreground", "", nil)
	if got := a.names(); got != "" {
		t.Errorf("left of a circle are %q", got)
	}
}

// What a process did not come to is done by the next one, but not for an owner whose file it cannot read.
func TestOwnersAfterARestart(t *testing.T) {
	for _, broken := range []bool{false, true} {
		dir := t.TempDir()
		a := start(t, store.NewDir(dir))
		a.family("a", "b a")
		a.stop()
		path := filepath.Join(dir, "configmap.default.a.yaml")
		if broken {
			edit(t, path, "kind: ConfigMap", "kind: [")
		} else if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{false: "", true: "b"}[broken]
		if got := start(t, store.NewDir(dir)).names(); got != want {
			t.Errorf("broken %t: left are %q; want %q", broken, got, want)
		}
	}
}
