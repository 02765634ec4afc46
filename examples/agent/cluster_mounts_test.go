package main

import (
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

// mounting is a pod with a token of its account, the roots of a signer, and a
// device by a claim.
func mounting(name, claim string) *v1.Pod {
	p := bound(name)
	hour, mode, signer := int64(3600), v1.ProjectedVolumeSourceDefaultMode, "example.com/ca"
	p.Spec.ServiceAccountName = "default"
	p.Spec.NodeSelector = nil
	p.Spec.Volumes = []v1.Volume{{Name: "of-the-cluster", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &hour}},
		{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "roots.pem", SignerName: &signer, LabelSelector: &metav1.LabelSelector{}}},
	}}}}}
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	p.Spec.Containers = []v1.Container{{
		Name: "main", Image: sampleimage.Testbox, ImagePullPolicy: v1.PullNever,
		Args:         []string{"cat", "/in/token", "cat", "/in/roots.pem", "cat", "/dev/dra/" + claim, "out", "ready", "sleep", "forever"},
		VolumeMounts: []v1.VolumeMount{{Name: "of-the-cluster", MountPath: "/in"}},
		Resources:    v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "gpu"}}},
	}}
	return p
}

// A pod gets what it mounts of the cluster, and its device; and again when the
// machine boots where there is no network.
func TestAPodOfAClusterAfterABoot(t *testing.T) {
	l := newClusterLab(t)
	key := filepath.Join(filepath.Dir(l.manifests), "secret.key")
	l.must(os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600))
	l.args = append(l.args, "--secret-key-file", key)
	issued := 0
	l.api.Handle("serviceaccounts/token", func(_ kubeapitest.Request, body runtime.Object) (runtime.Object, error) {
		issued++
		r := body.(*authenticationv1.TokenRequest)
		r.Status = authenticationv1.TokenRequestStatus{Token: fmt.Sprint("issued-", issued), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))}
		return r, nil
	})
	l.api.Create(&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}})
	root := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("a root")}))
	l.api.Create(&certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "example.com:ca:1"},
		Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: "example.com/ca", TrustBundle: "# of the company\n" + root},
	})
	d := l.newDRADriver()
	d.start()
	l.start()
	l.nodeIs(v1.ConditionTrue)

	l.api.Create(mounting("a", "gpu"))
	var uid types.UID
	l.eventually("it waits for its claim, which is not there", func() error {
		for _, o := range l.api.All(kubeapi.Events) {
			if e := o.(*v1.Event); e.InvolvedObject.Name == "a" && e.Reason == "FailedPrepareDynamicResources" {
				uid = e.InvolvedObject.UID
				return nil
			}
		}
		return errors.New("no event")
	})
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gpu"}}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "gpu.example.com", Pool: "node", Device: "null0"}},
	}}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "a", UID: uid}}
	l.api.Create(claim)
	id := l.running("a")
	sees := func(want ...string) {
		t.Helper()
		l.eventually("it sees what it mounts", func() error {
			said := l.ask("logs", "a")
			for _, w := range want {
				if !strings.Contains(said, w) {
					return fmt.Errorf("no %q in:\n%s", w, said)
				}
			}
			return nil
		})
	}
	sees("issued-1", root)
	d.wantHeard("prepared default/gpu")
	kept, err := filepath.Glob(filepath.Join(l.root, "cluster", "tokens", "*"))
	l.must(err)
	if len(kept) != 1 {
		t.Fatalf("%d tokens are kept, want 1", len(kept))
	}
	if b, err := os.ReadFile(kept[0]); err != nil || strings.Contains(string(b), "issued-1") {
		t.Errorf("the token is kept as it is (%v)", err)
	}

	// The agent alone: nothing is asked for again.
	l.kill()
	l.start()
	l.untilReady("a")
	if issued != 1 {
		t.Errorf("%d tokens were issued, want 1", issued)
	}

	// The machine, as far as that can be had: nothing runs, nothing is mounted, nobody
	// answers, and nobody has in this boot.
	l.kill()
	l.must(os.RemoveAll(filepath.Join(l.root, "boot")))
	l.api.Stop()
	for _, s := range l.sandboxes() {
		l.must(l.cri.StopPodSandbox(t.Context(), s.GetId()))
		l.must(l.cri.RemovePodSandbox(t.Context(), s.GetId()))
	}
	l.must(containerdtest.UnmountBelow(filepath.Join(l.root, "pods")))
	l.start()
	l.until("ready again", func(pods map[string]*v1.Pod) bool {
		return ready(pods["a"]) && containerID(pods["a"], "main") != id
	})
	sees("issued-1", root)
	d.wantHeard("prepared default/gpu")

	l.api.Start()
	l.running("a")
	l.api.Delete(kubeapi.Pods, "default", "a")
	l.untilGone("a")
	l.eventually("its token goes with it", func() error {
		if left, _ := filepath.Glob(filepath.Join(l.root, "cluster", "tokens", "*")); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
	d.wantHeard("prepared default/gpu; unprepared default/gpu")
}
