package podmgr

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

const claimYAML = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu}
spec:
  devices:
    requests: [{name: r, exactly: {deviceClassName: gpu}}]
status:
  allocation:
    devices:
      results: [{request: r, driver: gpu.example.com, pool: node, device: d0}]
`

func TestClaimDocuments(t *testing.T) {
	d := decodeString(claimYAML)
	if len(d.problems) != 0 || len(d.resources) != 1 {
		t.Fatalf("%d claims, problems %v", len(d.resources), d.problems)
	}
	c := d.resources[0]
	if c.Namespace != "default" || c.UID == "" || c.Status.Allocation.Devices.Results[0].Driver != "gpu.example.com" {
		t.Errorf("claim %+v", c)
	}
	uid := func(from, to string) string {
		return string(decodeString(strings.Replace(claimYAML, from, to, 1)).resources[0].UID)
	}
	same := uid("metadata: {name: gpu}", "metadata: {labels: {a: b}, name: gpu}")
	if same != string(c.UID) || uid("d0", "d1") == same || uid("name: gpu}", "name: other}") == same || uid("name: gpu}", "name: gpu, uid: mine}") != "mine" {
		t.Error("the UID should go with the name and the allocation")
	}
	for _, tt := range []struct{ from, to, field, want string }{
		{"resource.k8s.io/v1", "resource.k8s.io/v1beta1", "apiVersion", "want resource.k8s.io/v1"},
		{"resource.k8s.io/v1", "v1", "apiVersion", "want resource.k8s.io/v1"},
		{"name: gpu}", "namespace: x}", "metadata.name", "missing"},
		{"allocation:\n    devices:\n      results: [{request: r, driver: gpu.example.com, pool: node, device: d0}]", "reservedFor: []", "status.allocation", "missing"},
		{"driver: gpu.example.com, ", "", "status.allocation.devices.results[0].driver", "missing"},
		{"pool: node", "pol: node", "status.allocation.devices.results[0].pol", "unknown field"},
	} {
		d := decodeString(strings.Replace(claimYAML, tt.from, tt.to, 1))
		if len(d.resources) != 0 || len(d.problems) == 0 || d.problems[0].Field != tt.field || !strings.Contains(d.problems[0].Reason, tt.want) {
			t.Errorf("%s: %d claims, problems %v, want %s: %s", tt.to, len(d.resources), d.problems, tt.field, tt.want)
		}
	}
	if d := decodeString("apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(claimYAML), "\n", "\n  ")); len(d.resources) != 1 {
		t.Errorf("in a list: %v", d.problems)
	}
}

func TestPodWithClaim(t *testing.T) {
	d := decodeString(specYAML("{resourceClaims: [{name: x, resourceClaimName: gpu}], containers: [{name: c, image: i, resources: {claims: [{name: x, request: r}]}}]}"))
	if len(d.pods) != 1 || len(d.problems) != 0 {
		t.Errorf("%d pods, problems %v", len(d.pods), d.problems)
	}
}

// Claims go the way of ConfigMaps: what changed is told, and what is broken
// leaves the last good version.
func TestClaimsThroughManager(t *testing.T) {
	old := &manifest{good: decodeString(claimYAML)}
	now := &manifest{good: decodeString(strings.Replace(claimYAML, "driver:", "drivr:", 1))}
	now.problems = now.good.problems
	now.keep(old)
	if len(now.good.resources) != 1 || !now.problems[0].Kept {
		t.Errorf("%d claims are kept, problems %v", len(now.good.resources), now.problems)
	}
	m := newSilent(t, "file")
	claims := func(s string) []*resourceapi.ResourceClaim { return decodeString(s).resources }
	m.merge("file", Snapshot{ResourceClaims: claims(claimYAML)})
	if got := m.ResourceClaims("default")["gpu"]; got == nil || len(m.ResourceClaims("x")) != 0 {
		t.Errorf("claim %v", got)
	}
	drain(m)
	m.merge("file", Snapshot{ResourceClaims: claims(strings.Replace(claimYAML, "d0", "d1", 1)), Pods: []*v1.Pod{with("a")}})
	if got, want := drain(m), []string{"ADD file a (ResourceClaim default/gpu)"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}
