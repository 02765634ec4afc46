package podsync_test

import (
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
)

func static(hash string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-edge-1", UID: "static", Annotations: map[string]string{
			"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": hash}},
		Spec:   v1.PodSpec{NodeName: "edge-1", Containers: []v1.Container{{Name: "c", Image: "i"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
}

type world struct {
	*kubeapitest.Server
	m    *podsync.Mirrors
	node types.UID
	away bool
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{Server: kubeapitest.New(), node: "node-uid"}
	c, err := kubeapi.New(kubeapi.Config{REST: w.Config()})
	if err != nil {
		t.Fatal(err)
	}
	w.m, err = podsync.NewMirrors(podsync.MirrorsConfig{Client: c, NodeName: "edge-1", Node: func() (types.UID, bool) { return w.node, !w.away }})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) mirror() *v1.Pod {
	p, _ := w.Get(&v1.Pod{}, "ns", "web-edge-1").(*v1.Pod)
	return p
}

func TestEnsureMakesAMirror(t *testing.T) {
	w, s := setup(t), static("1")
	if err := w.m.Ensure(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	p := w.mirror()
	if p == nil || p.UID == s.UID || p.Annotations["kubernetes.io/config.mirror"] != "1" || p.Annotations["kubernetes.io/config.source"] != "file" {
		t.Fatalf("made %v", p)
	}
	if o := p.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].Name != "edge-1" || o[0].UID != "node-uid" || !*o[0].Controller {
		t.Errorf("it belongs to %v", o)
	}
	if s.OwnerReferences != nil || s.Annotations["kubernetes.io/config.mirror"] != "" {
		t.Error("what was handed in was changed")
	}
	w.ForgetRequests()
	if err := w.m.Ensure(t.Context(), s, p); err != nil || len(w.Requests()) != 0 {
		t.Errorf("called %d times for a mirror that is there (%v)", len(w.Requests()), err)
	}
	// It may be there before the watch has told so.
	if err := w.m.Ensure(t.Context(), s, nil); err != nil {
		t.Error(err)
	}
	if err := w.m.Ensure(t.Context(), static("2"), nil); err == nil {
		t.Error("another version's mirror counts as this one's")
	}
}

func TestEnsureReplaces(t *testing.T) {
	for name, change := range map[string]func(*v1.Pod){
		"outdated":      func(p *v1.Pod) { p.Annotations["kubernetes.io/config.mirror"] = "0" },
		"being deleted": func(p *v1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now },
	} {
		t.Run(name, func(t *testing.T) {
			w, s := setup(t), static("1")
			if err := w.m.Ensure(t.Context(), s, nil); err != nil {
				t.Fatal(err)
			}
			old := w.mirror()
			change(old)
			w.Put(old)
			if err := w.m.Ensure(t.Context(), s, old); err != nil {
				t.Fatal(err)
			}
			if p := w.mirror(); p == nil || p.UID == old.UID || !podsync.IsMirrorOf(p, s) || p.DeletionTimestamp != nil {
				t.Errorf("there is %v", p)
			}
		})
	}
}

func TestEnsureWithoutANode(t *testing.T) {
	w := setup(t)
	w.away = true
	if err := w.m.Ensure(t.Context(), static("1"), nil); err != nil || w.mirror() != nil {
		t.Errorf("made %v (%v)", w.mirror(), err)
	}
	w.away, w.node = false, ""
	if err := w.m.Ensure(t.Context(), static("1"), nil); err == nil || !strings.Contains(err.Error(), "no UID") {
		t.Errorf("got %v", err)
	}
	w.node = "node-uid"
	if err := w.m.Ensure(t.Context(), static(""), nil); err == nil || !strings.Contains(err.Error(), "config.hash") {
		t.Errorf("got %v", err)
	}
}

func TestRemove(t *testing.T) {
	w, s := setup(t), static("1")
	if err := w.m.Ensure(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	p := w.mirror()
	other := p.DeepCopy()
	other.UID = "other"
	if err := w.m.Remove(t.Context(), other); err != nil || w.mirror() == nil {
		t.Errorf("removed another pod (%v)", err)
	}
	if err := w.m.Remove(t.Context(), s); err == nil {
		t.Error("removed what is no mirror")
	}
	w.Fail(kubeapitest.Refuse(1, kubeapitest.Status(http.StatusInternalServerError), kubeapitest.Of("delete", kubeapi.Pods)))
	if err := w.m.Remove(t.Context(), p); err == nil {
		t.Error("a failure is no error")
	}
	if err := w.m.Remove(t.Context(), p); err != nil || w.mirror() != nil {
		t.Errorf("there is still %v (%v)", w.mirror(), err)
	}
	if err := w.m.Remove(t.Context(), p); err != nil {
		t.Errorf("removed it twice: %v", err)
	}
}

func TestConfig(t *testing.T) {
	_, err := podsync.NewMirrors(podsync.MirrorsConfig{})
	for _, want := range []string{"Client", "NodeName", "Node is"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s in it", err, want)
		}
	}
}
