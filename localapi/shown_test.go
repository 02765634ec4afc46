package localapi_test

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/localapi/store"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podmgr"
)

// manifests is a source that delivers what it is given.
type manifests chan podmgr.Snapshot

func (manifests) Name() string { return "manifests" }

func (m manifests) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	for {
		select {
		case s := <-m:
			deliver(s)
		case <-ctx.Done():
			return nil
		}
	}
}

// A pod whose manifest goes, or becomes another pod, is Terminating until the agent has nothing of it.
func TestShownPodEnds(t *testing.T) {
	a := start(t, &store.Memory{})
	m := manifests(make(chan podmgr.Snapshot))
	delivered := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Show(m).Run(ctx, func(podmgr.Snapshot) { delivered <- struct{}{} }) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	deliver := func(pods ...*v1.Pod) {
		m <- podmgr.Snapshot{Pods: pods}
		<-delivered
	}
	prune := func(keep ...types.UID) {
		t.Helper()
		all := map[types.UID]bool{}
		for _, uid := range keep {
			all[uid] = true
		}
		if err := a.Prune(all); err != nil {
			t.Fatal(err)
		}
	}
	get := func() v1.Pod { t.Helper(); return must[v1.Pod](a, "GET", pods+"/web", "", nil) }
	report := func(p *v1.Pod, phase v1.PodPhase) {
		t.Helper()
		if err := a.Update(t.Context(), p, v1.PodStatus{Phase: phase}); err != nil {
			t.Error(err)
		}
	}
	one, two := pod("web"), pod("web")
	one.Namespace, one.UID, two.Namespace, two.UID = "default", "1", "default", "2"

	deliver(one)
	if p := get(); p.Annotations[podmeta.AnnotationMirror] != "1" {
		t.Errorf("kubectl drain does not pass over it: %v", p.Annotations)
	}
	report(one, v1.PodRunning)
	w := a.watch(pods + "?watch=1&resourceVersion=" + get().ResourceVersion)
	deliver(two) // the manifest is edited
	if p := get(); p.UID != "1" || p.DeletionTimestamp == nil || p.Status.Phase != v1.PodRunning {
		t.Errorf("%+v", p)
	}
	a.refused("DELETE", pods+"/web?gracePeriodSeconds=0", "", "", 403, metav1.StatusReasonForbidden, "only there")
	report(two, v1.PodPending)
	report(one, v1.PodFailed) // and its containers have ended, but are there
	prune("1", "2")
	w.next("MODIFIED web")
	w.next("MODIFIED web")
	prune("2")
	w.next("DELETED web")
	w.next("ADDED web")
	if p := get(); p.UID != "2" || p.DeletionTimestamp != nil || p.Status.Phase != v1.PodPending {
		t.Errorf("%+v", p)
	}
	report(two, v1.PodRunning)
	deliver() // the manifest is removed
	if p := get(); p.DeletionTimestamp == nil {
		t.Errorf("%+v", p)
	}
	deliver(two) // and is there again
	if p := get(); p.UID != "2" || p.DeletionTimestamp != nil || p.Status.Phase != v1.PodRunning {
		t.Errorf("%+v", p)
	}
	deliver()
	prune()
	a.refused("GET", pods+"/web", "", "", 404, metav1.StatusReasonNotFound, "")
}
