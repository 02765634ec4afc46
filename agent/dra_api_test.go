package agent_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/nodewright/nodewright/podmgr"
)

// A pod of the API server may use a claim that a scheduler has reserved for it,
// and waits for that, also if manifests would not have to.
func TestClaimsOfTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := claimNode(t)
		source := newAPISource()
		n.more = []podmgr.Source{source}
		p := claiming(newPod("p", runs("c")), "a")
		n.claims.add("a")
		claim := n.claims.all[0].DeepCopy()
		n.claims.all = nil
		l := n.start()
		tell := func() {
			source.snapshots <- podmgr.Snapshot{Pods: []*v1.Pod{p.DeepCopy()}, ResourceClaims: []*resourceapi.ResourceClaim{claim.DeepCopy()}}
		}
		tell()
		n.claims.come()
		settle()
		l.wantPhase("p", v1.PodPending)
		if r := l.reasons("p"); !slices.Contains(r, "FailedPrepareDynamicResources") {
			t.Errorf("events %v", r)
		}
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: p.UID}}
		tell()
		settle()
		l.wantPhase("p", v1.PodRunning)
		if got := n.cdi("c"); !strings.Contains(got, "v/c=a") {
			t.Errorf("devices %q", got)
		}
		n.claims.called("prepare a")
		l.stop()
	})
}
