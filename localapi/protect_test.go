package localapi_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi/store"
	"github.com/nodewright/nodewright/podmgr"
)

const (
	storageClaims = "/api/v1/namespaces/default/persistentvolumeclaims"
	storage       = "/api/v1/persistentvolumes"
	deviceClaims  = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
)

// disk makes a volume and a claim that is bound to it.
func (a *api) disk() {
	a.t.Helper()
	must[v1.PersistentVolume](a, "POST", storage, asJSON, `{"metadata":{"name":"disk"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],
		"storageClassName":"","hostPath":{"path":"/srv/disk"},"claimRef":{"namespace":"default","name":"data"}}}`)
	must[v1.PersistentVolumeClaim](a, "POST", storageClaims, asJSON, `{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"",
		"volumeName":"disk","resources":{"requests":{"storage":"1Gi"}}}}`)
}

// devices makes a claim for devices.
func (a *api) devices() {
	a.t.Helper()
	must[metav1.PartialObjectMetadata](a, "POST", deviceClaims, asJSON, `{"metadata":{"name":"gpu"},"spec":{"devices":{"requests":[{"name":"one","exactly":{"deviceClassName":"gpu.example.com"}}]}}}`)
}

// userOf is a pod that uses both.
func userOf(name string) *v1.Pod {
	p := pod(name)
	p.Namespace = "default"
	p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	claim := "gpu"
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	return p
}

// waits checks that an object waits for its users.
func (a *api) waits(path, finalizer string) {
	a.t.Helper()
	o := must[metav1.PartialObjectMetadata](a, "GET", path, "", nil)
	if o.DeletionTimestamp == nil || !slices.Contains(o.Finalizers, finalizer) {
		a.t.Errorf("%s: deleted at %v, finalizers %v", path, o.DeletionTimestamp, o.Finalizers)
	}
}

func (a *api) absent(path string) {
	a.t.Helper()
	a.refused("GET", path, "", "", 404, metav1.StatusReasonNotFound, "")
}

const (
	claimProtection  = "kubernetes.io/pvc-protection"
	volumeProtection = "kubernetes.io/pv-protection"
	deviceProtection = "resource.kubernetes.io/delete-protection"
)

// Claims that a pod uses, and a volume that a claim uses, stay until nobody does, also over a restart.
func TestUsedObjectsWait(t *testing.T) {
	var kept store.Memory
	a := start(t, &kept)
	a.disk()
	a.devices()
	p := must[v1.Pod](a, "POST", pods, asJSON, userOf("web"))
	if o := must[metav1.PartialObjectMetadata](a, "DELETE", storageClaims+"/data", "", nil); o.Kind != "PersistentVolumeClaim" || o.DeletionTimestamp == nil {
		t.Errorf("%+v", o)
	}
	a.do("DELETE", storage+"/disk", "", "")
	a.do("DELETE", deviceClaims+"/gpu", "", "")
	waiting := func() {
		t.Helper()
		a.waits(storageClaims+"/data", claimProtection)
		a.waits(storage+"/disk", volumeProtection)
	}
	waiting()
	a.waits(deviceClaims+"/gpu", deviceProtection)
	a.stop()
	a = start(t, &kept)
	waiting()
	a.waits(deviceClaims+"/gpu", deviceProtection)

	if err := a.Update(t.Context(), &p, v1.PodStatus{Phase: v1.PodSucceeded}); err != nil {
		t.Fatal(err)
	}
	a.absent(deviceClaims + "/gpu")
	waiting()
	a.do("DELETE", pods+"/web", "", "")
	a.absent(pods + "/web")
	a.absent(storageClaims + "/data")
	a.absent(storage + "/disk")
}

// What nobody uses is gone at once, also with the finalizers that a cluster has put there.
func TestUnusedObjectsGo(t *testing.T) {
	a := start(t, &store.Memory{})
	a.disk()
	a.devices()
	must[metav1.PartialObjectMetadata](a, "PATCH", storageClaims+"/data", "application/merge-patch+json", `{"metadata":{"finalizers":["`+claimProtection+`"]}}`)
	for _, path := range []string{storageClaims + "/data", storage + "/disk", deviceClaims + "/gpu"} {
		if code, text := a.do("DELETE", path, "", ""); code != 200 {
			t.Errorf("%s: %d %s", path, code, text)
		}
		a.absent(path)
	}
}

// A namespace ends with the pod that its claims wait for, and a client may take the protection away.
func TestProtectionEnds(t *testing.T) {
	a := start(t, &store.Memory{})
	a.disk()
	a.devices()
	p := must[v1.Pod](a, "POST", pods, asJSON, userOf("web"))
	a.do("DELETE", deviceClaims+"/gpu", "", "")
	must[metav1.PartialObjectMetadata](a, "PATCH", deviceClaims+"/gpu", "application/merge-patch+json", `{"metadata":{"finalizers":null}}`)
	a.absent(deviceClaims + "/gpu")

	const team = "/api/v1/namespaces/team"
	q := userOf("web")
	q.Namespace, q.Spec.ResourceClaims = "team", nil
	made := must[v1.Pod](a, "POST", team+"/pods", asJSON, q)
	must[v1.PersistentVolumeClaim](a, "POST", team+"/persistentvolumeclaims", asJSON, `{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`)
	must[v1.Namespace](a, "DELETE", team, "", nil)
	a.waits(team+"/persistentvolumeclaims/data", claimProtection)
	if err := a.Delete(t.Context(), &made); err != nil {
		t.Fatal(err)
	}
	a.absent(team)
	a.do("DELETE", pods+"/web", "", "")
	if err := a.Delete(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	must[v1.PersistentVolumeClaim](a, "GET", storageClaims+"/data", "", nil)
}

// The pods of manifests use claims as well, and nobody knows of them before they are delivered.
func TestManifestsUseClaims(t *testing.T) {
	a := start(t, &store.Memory{})
	a.disk()
	a.devices()
	m := manifests(make(chan podmgr.Snapshot))
	delivered := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	shown := a.Show(m)
	a.do("DELETE", storageClaims+"/data", "", "")
	a.do("DELETE", deviceClaims+"/gpu", "", "")
	a.waits(storageClaims+"/data", claimProtection)
	go func() { ended <- shown.Run(ctx, func(podmgr.Snapshot) { delivered <- struct{}{} }) }()
	p := userOf("web")
	p.UID, p.Spec.NodeName, p.Spec.ResourceClaims = "1", "node-1", nil
	m <- podmgr.Snapshot{Pods: []*v1.Pod{p}}
	<-delivered
	until(t, "the unused claim is gone", func() bool { code, _ := a.do("GET", deviceClaims+"/gpu", "", ""); return code == 404 })
	m <- podmgr.Snapshot{}
	<-delivered
	a.waits(storageClaims+"/data", claimProtection) // the pod ends
	if err := a.Prune(nil); err != nil {
		t.Fatal(err)
	}
	until(t, "the claim is gone", func() bool { code, _ := a.do("GET", storageClaims+"/data", "", ""); return code == 404 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A pod that is made when a claim of it is being deleted does not keep the claim: it waits for
// the end of that, as for a scheduler, and is put on the node then.
func TestNewPodsWaitForTheEndOfClaims(t *testing.T) {
	for _, path := range []string{storageClaims + "/data", deviceClaims + "/gpu"} {
		a := start(t, &store.Memory{})
		a.disk()
		a.devices()
		must[v1.Pod](a, "POST", pods, asJSON, userOf("first"))
		a.do("DELETE", path, "", "")
		waits := func() v1.Pod {
			t.Helper()
			p := must[v1.Pod](a, "GET", pods+"/second", "", nil)
			if p.Spec.NodeName != "" || len(p.Status.Conditions) != 1 || p.Status.Conditions[0].Reason != v1.PodReasonUnschedulable {
				t.Fatalf("%s: on node %q, conditions %+v", path, p.Spec.NodeName, p.Status.Conditions)
			}
			return p
		}
		must[v1.Pod](a, "POST", pods, asJSON, userOf("second"))
		if said := waits().Status.Conditions[0].Message; !strings.HasSuffix(said, `claim "`+path[strings.LastIndex(path, "/")+1:]+`" is being deleted`) {
			t.Errorf("%s: the pod waits as %q", path, said)
		}
		p := waits()
		p.Labels = map[string]string{"a": "b"}
		must[v1.Pod](a, "PUT", pods+"/second", asJSON, p)
		waits()
		a.do("DELETE", pods+"/first?gracePeriodSeconds=0", "", "")
		a.absent(path)
		if p := must[v1.Pod](a, "GET", pods+"/second", "", nil); p.Spec.NodeName == "" || len(p.Status.Conditions) != 0 {
			t.Errorf("%s is gone: on node %q, conditions %+v", path, p.Spec.NodeName, p.Status.Conditions)
		}
	}
}
