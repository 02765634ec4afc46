package localapi_test

import (
	"context"
	"errors"
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
	"github.com/nodewright/nodewright/podmgr"
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

// An owner that cannot be read, or is shown only later, is not gone: its dependents are there after a restart.
func TestOwnersAfterARestart(t *testing.T) {
	dir := t.TempDir()
	a := start(t, store.NewDir(dir))
	a.family("a", "b a")
	a.stop()
	edit(t, filepath.Join(dir, "configmap.default.a.yaml"), "kind: ConfigMap", "kind: [")
	b := start(t, store.NewDir(dir))
	if got := b.names(); got != "b" {
		t.Errorf("left are %q", got)
	}
	edit(t, filepath.Join(dir, "configmap.default.a.yaml"), "kind: [", "kind: ConfigMap")
	until(t, "the owner is back", func() bool { return b.names() == "a b" })
	if err := os.Remove(filepath.Join(dir, "configmap.default.a.yaml")); err != nil {
		t.Fatal(err)
	}
	until(t, "both are gone", func() bool { return b.names() == "" })
}

// While a source has not delivered, nobody knows which owners there are.
func TestOwnersOfManifests(t *testing.T) {
	a := start(t, &store.Memory{})
	m := manifests(make(chan podmgr.Snapshot))
	delivered := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	shown := a.Show(m)
	a.family("a nobody")
	if got := a.names(); got != "a" {
		t.Errorf("left are %q", got)
	}
	go func() { ended <- shown.Run(ctx, func(podmgr.Snapshot) { delivered <- struct{}{} }) }()
	m <- podmgr.Snapshot{}
	<-delivered
	a.family("b nobody")
	if got := a.names(); got != "a" {
		t.Errorf("left are %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// failing is a store that cannot remove a file.
type failing struct {
	store.Memory

	name string
}

func (f *failing) Delete(name, was string) error {
	if name == f.name {
		return errors.New("the disk is read only")
	}
	return f.Memory.Delete(name, was)
}

// Dependents go before their owner: one that cannot be deleted keeps it, and a process that is killed leaves none without.
func TestOwnersGoLast(t *testing.T) {
	f := &failing{name: "configmap.default.c.yaml"}
	a := start(t, f)
	a.family("a", "b a", "c b")
	a.refused("DELETE", configMaps+"/a", "", "", 500, metav1.StatusReasonInternalError, "read only")
	if got := a.names(); got != "a b c" {
		t.Errorf("left are %q", got)
	}
	f.name = ""
	must[metav1.Status](a, "DELETE", configMaps+"/a", "", nil)
	if got := a.names(); got != "" {
		t.Errorf("left are %q", got)
	}
	// A circle.
	a.family("a", "b a")
	last := must[v1.ConfigMap](a, "GET", configMaps+"/b", "", nil)
	must[v1.ConfigMap](a, "PATCH", configMaps+"/a", "application/merge-patch+json",
		fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"b","uid":%q}]}}`, last.UID))
	a.refused("DELETE", configMaps+"/none", "", "", 404, metav1.StatusReasonNotFound, "")
	a.do("DELETE", configMaps+"/a", "", "")
	if got := a.names(); got != "" {
		t.Errorf("left of a circle are %q", got)
	}
}
