package localapi_test

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi/store"
)

// What is checked of kinds beside pods, and what of them cannot change. e2e/parity has all
// fields.
func TestValidation(t *testing.T) {
	a := start(t, &store.Memory{})
	const (
		volumes = "/api/v1/persistentvolumes"
		claims  = "/api/v1/namespaces/default/persistentvolumeclaims"
		devices = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
		secrets = "/api/v1/namespaces/default/secrets"
		events  = "/api/v1/namespaces/default/events"
		volume  = `{"metadata":{"name":"v"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/data"}}}`
		claim   = `{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`
		device  = `{"metadata":{"name":"d"},"spec":{"devices":{"requests":[{"name":"one","exactly":{"deviceClassName":"gpu.example.com"}}]}}}`
	)
	for path, body := range map[string]string{volumes: volume, claims: claim, devices: device} {
		must[metav1.PartialObjectMetadata](a, "POST", path, asJSON, body)
	}
	for _, c := range []struct{ method, path, body, says string }{
		// Changes.
		{"PATCH", volumes + "/v", `{"spec":{"hostPath":{"path":"/etc"}}}`, "spec.persistentvolumesource is immutable after creation"},
		{"PATCH", volumes + "/v", `{"spec":{"accessModes":["Foo"]}}`, `Unsupported value: "Foo"`},
		{"PATCH", claims + "/c", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`, "spec is immutable after creation"},
		{"PATCH", claims + "/c", `{"spec":{"accessModes":["ReadWriteMany"]}}`, "spec is immutable after creation"},
		{"PATCH", devices + "/d", `{"spec":{"devices":{"requests":[]}}}`, "field is immutable"},
		// New ones.
		{"POST", volumes, `{"metadata":{"name":"x"},"spec":{"capacity":{"storage":"-1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/data/../etc"}}}`, "without '..'"},
		{"POST", volumes, `{"metadata":{"name":"x"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"persistentVolumeReclaimPolicy":"Bogus","nfs":{"server":"s","path":"/"}}}`, `"Bogus"`},
		{"POST", claims, `{"metadata":{"name":"x"},"spec":{"accessModes":["ReadWriteOnce"]}}`, "spec.resources[storage]"},
		{"POST", devices, `{"metadata":{"name":"x"},"spec":{"devices":{"requests":[{"name":"one"}]}}}`, "exactly one of exactly and firstAvailable"},
		{"POST", devices, `{"metadata":{"name":"x"},"spec":{"devices":{"requests":[{"name":"one","exactly":{"deviceClassName":"g","adminAccess":true}}]}}}`, "resource.kubernetes.io/admin-access"},
		{"POST", secrets, `{"metadata":{"name":"x"},"type":"kubernetes.io/tls"}`, "data[tls.crt]"},
		{"POST", secrets, `{"metadata":{"name":"x"},"type":"kubernetes.io/basic-auth"}`, "data[username]"},
		{"POST", secrets, `{"metadata":{"name":"x"},"type":"kubernetes.io/service-account-token"}`, "kubernetes.io/service-account.name"},
		{"POST", secrets, `{"metadata":{"name":"x"},"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"no"}}`, "must be a JSON object"},
		{"POST", events, `{"metadata":{"name":"x"},"eventTime":"2026-01-01T00:00:00.000000Z","involvedObject":{"namespace":"default"}}`, "reportingComponent"},
		{"POST", configMaps, `{"metadata":{"name":"x","finalizers":["Foo"]}}`, "metadata.finalizers[0]"},
		{"POST", configMaps, `{"metadata":{"name":"x","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"a","controller":true},{"apiVersion":"v1","kind":"Pod","name":"b","uid":"b","controller":true}]}}`, "Only one reference can have Controller set to true"},
	} {
		if !json.Valid([]byte(c.body)) {
			t.Fatal(c.body)
		}
		media := asJSON
		if c.method == "PATCH" {
			media = "application/merge-patch+json"
		}
		a.refused(c.method, c.path, media, c.body, 422, metav1.StatusReasonInvalid, c.says)
	}
	// A claim that has its volume may ask for more.
	must[metav1.PartialObjectMetadata](a, "PATCH", claims+"/c", "application/merge-patch+json", `{"spec":{"volumeName":"v"}}`)
	must[metav1.PartialObjectMetadata](a, "PATCH", claims+"/c", "application/merge-patch+json", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
}

// The two classes that every cluster has make a pod critical; nobody chooses a number.
func TestPriorities(t *testing.T) {
	a := start(t, &store.Memory{})
	for _, c := range []struct {
		name, spec string
		want       int32
		says       string
	}{
		{"node", `"priorityClassName":"system-node-critical"`, 2000001000, ""},
		{"cluster", `"priorityClassName":"system-cluster-critical"`, 2000000000, ""},
		{"both", `"priorityClassName":"system-cluster-critical","priority":2000000000`, 2000000000, ""},
		{"none", `"dnsPolicy":"Default"`, 0, ""},
		{"unknown", `"priorityClassName":"high"`, 0, "no PriorityClass with name high was found"},
		{"chosen", `"priority":5`, 0, "must not be provided"},
		{"other", `"priorityClassName":"system-node-critical","priority":5`, 0, "must not be provided"},
	} {
		body := `{"metadata":{"name":"` + c.name + `"},"spec":{"containers":[{"name":"c","image":"localhost/app:1"}],` + c.spec + `}}`
		if c.says != "" {
			a.refused("POST", pods, asJSON, body, 403, metav1.StatusReasonForbidden, c.says)
			continue
		}
		p := must[v1.Pod](a, "POST", pods, asJSON, body)
		if got := deref(p.Spec.Priority); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	// Who writes a pod again without it leaves it as it was.
	p := must[v1.Pod](a, "GET", pods+"/node", "", nil)
	p.Spec.Priority = nil
	if p = must[v1.Pod](a, "PUT", pods+"/node", asJSON, &p); deref(p.Spec.Priority) != 2000001000 {
		t.Errorf("%v", p.Spec.Priority)
	}
}

func deref(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}
