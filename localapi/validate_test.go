package localapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
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
	// What is wrong is said first of an object that is there already as well.
	a.refused("POST", claims, asJSON, `{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"]}}`, 422, metav1.StatusReasonInvalid, "spec.resources[storage]")
	a.refused("POST", claims, asJSON, claim, 409, metav1.StatusReasonAlreadyExists, "already exists")
	must[metav1.PartialObjectMetadata](a, "POST", "/apis/events.k8s.io/v1/namespaces/default/events", asJSON, `{"metadata":{"name":"e"},"eventTime":"2026-01-01T00:00:00.000000Z","action":"a","reason":"r","type":"Normal","reportingController":"a.b/c","reportingInstance":"i","regarding":{"kind":"Pod","namespace":"default","name":"p"}}`)
	// A claim that has its volume may ask for more.
	must[metav1.PartialObjectMetadata](a, "PATCH", claims+"/c", "application/merge-patch+json", `{"spec":{"volumeName":"v"}}`)
	must[metav1.PartialObjectMetadata](a, "PATCH", claims+"/c", "application/merge-patch+json", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
}

// What is checked of statuses, and of what other subresources are for. e2e/parity has all fields.
func TestSubresourcesAreChecked(t *testing.T) {
	a := start(t, &store.Memory{})
	const (
		merge, strategic = "application/merge-patch+json", "application/strategic-merge-patch+json"
		claims           = "/api/v1/namespaces/default/persistentvolumeclaims"
		devices          = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
		spaces           = "/api/v1/namespaces/default"
		web              = pods + "/web"
	)
	must[v1.Pod](a, "POST", pods, asJSON, `{"metadata":{"name":"web"},"spec":{"restartPolicy":"Never","resourceClaims":[{"name":"gpu","resourceClaimName":"d"}],"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1","memory":"1Mi"},"limits":{"memory":"2Mi"},"claims":[{"name":"gpu"}]}},{"name":"b","image":"i"}]}}`)
	must[v1.Pod](a, "PATCH", web+"/status", merge, `{"status":{"phase":"Running","podIP":"192.0.2.1","podIPs":[{"ip":"192.0.2.1"}],"containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":1}},"allocatedResourcesStatus":[{"name":"claim:gpu","resources":[{"resourceID":"0","health":"Healthy"}]}]}],"resourceClaimStatuses":[{"name":"gpu","resourceClaimName":"d"}]}}`)
	must[v1.PersistentVolumeClaim](a, "POST", claims, asJSON, `{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`)
	const (
		device    = `{"metadata":{"name":"d"},"spec":{"devices":{"requests":[{"name":"one","exactly":{"deviceClassName":"gpu.example.com"}}]}}}`
		allocated = `"allocation":{"devices":{"results":[{"request":"one","driver":"gpu.example.com","pool":"n","device":"gpu-0"}]}}`
	)
	must[metav1.PartialObjectMetadata](a, "POST", devices, asJSON, device)
	status := func(fields string) string { return `{"status":{` + fields + `}}` }
	for _, c := range []struct{ path, body, says string }{
		{web + "/status", status(`"observedGeneration":-1`), "status.observedGeneration"},
		{web + "/status", status(`"conditions":[{"type":"not valid","status":"True"}]`), "status.conditions[0].type"},
		{web + "/status", status(`"nominatedNodeName":"node-1"`), "status.nominatedNodeName"},
		{web + "/status", status(`"qosClass":"Guaranteed"`), "status.qosClass"},
		{web + "/status", status(`"podIP":"x"`), "status.podIPs"},
		{web + "/status", status(`"podIPs":[{"ip":"192.0.2.1"},{"ip":"192.0.2.2"}]`), "one address of each family"},
		{web + "/status", status(`"hostIP":"192.0.2.1","hostIPs":[{"ip":"192.0.2.2"}]`), "status.hostIPs"},
		{web + "/status", status(`"containerStatuses":[{"name":"c","state":{"running":{}}}]`), "status.containerStatuses[0].state: Forbidden"},
		{web + "/status", status(`"containerStatuses":[{"name":"b","user":{"linux":{"uid":-1,"gid":0}}}]`), "user.linux.uid"},
		{web + "/status", status(`"containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":1}},"allocatedResourcesStatus":[{"name":"claim:other"}]}]`), "allocatedResourcesStatus[0].name"},
		{web + "/status", status(`"ephemeralContainerStatuses":[{"name":"e","allocatedResourcesStatus":[{"name":"cpu"}]}]`), "have no resources"},
		{web + "/status", status(`"resourceClaimStatuses":[{"name":"other"}]`), "status.resourceClaimStatuses[0].name"},
		{web + "/status", status(`"extendedResourceClaimStatus":{"resourceClaimName":"d","requestMappings":[]}`), "requestMappings"},
		{spaces + "/status", status(`"phase":"Terminating"`), "status.phase"},
		{spaces + "/finalize", `{"spec":{"finalizers":["Foo"]}}`, "spec.finalizers[0]"},
		{claims + "/c/status", status(`"capacity":{"storage":"-1"}`), "status.capacity[storage]"},
		{claims + "/c/status", status(`"allocatedResources":{"cpu":"1"}`), "status.allocatedResources[cpu]"},
		{claims + "/c/status", status(`"allocatedResourceStatuses":{"storage":"Soon"}`), "status.allocatedResourceStatuses[storage]"},
		{devices + "/d/status", status(`"reservedFor":[{"resource":"pods","name":"web","uid":"u"}]`), "nothing is allocated"},
		{devices + "/d/status", status(`"allocation":{"devices":{"results":[{"request":"two","driver":"gpu.example.com","pool":"n","device":"gpu-0"}]}}`), "results[0].request"},
		{devices + "/d/status", status(`"allocation":{"devices":{"results":[{"request":"one","driver":"gpu.example.com","pool":"n","device":"gpu-0","adminAccess":true}]}}`), "admin-access"},
		{devices + "/d/status", status(allocated + `,"devices":[{"driver":"gpu.example.com","pool":"n","device":"gpu-1"}]`), "status.devices[0]: Not found"},
		{devices + "/d/status", status(allocated + `,"devices":[{"driver":"gpu.example.com","pool":"n","device":"gpu-0","networkData":{"ips":["192.0.2.1"]}}]`), "networkData.ips[0]"},
		{web + "/resize", `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":null}}},{"name":"b"}]}}`, "cannot remove requests or limits"},
		{web + "/resize", `{"spec":{"containers":[{"name":"b"},{"name":"c"}]}}`, "reorder containers"},
		{web + "/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"e","image":"i","resources":{"limits":{"cpu":"1"}}}]}}`, "spec.ephemeralContainers[0].resources"},
		{web + "/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"e","image":"i","env":[{"name":""}]}]}}`, "spec.ephemeralContainers[0].env[0].name"},
		{web + "/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"c","image":"i"}]}}`, "spec.ephemeralContainers[0].name"},
	} {
		if !json.Valid([]byte(c.body)) {
			t.Fatal(c.body)
		}
		a.refused("PATCH", c.path, merge, c.body, 422, metav1.StatusReasonInvalid, c.says)
	}
	// A new claim may have its status, which is checked as well.
	a.refused("POST", devices, asJSON, strings.Replace(device, `"d"},"spec"`, `"e"},"status":{"reservedFor":[{"resource":"pods","name":"web","uid":"u"}]},"spec"`, 1), 422, metav1.StatusReasonInvalid, "nothing is allocated")
	// What is allocated stays until it is given back, with what drivers say of it.
	must[resourcev1.ResourceClaim](a, "PATCH", devices+"/d/status", merge, status(allocated+`,"devices":[{"driver":"gpu.example.com","pool":"n","device":"gpu-0"}]`))
	a.refused("PATCH", devices+"/d/status", merge, strings.Replace(status(allocated), "gpu-0", "gpu-1", 1), 422, metav1.StatusReasonInvalid, "field is immutable")
	if c := must[resourcev1.ResourceClaim](a, "PATCH", devices+"/d/status", merge, status(`"allocation":null`)); len(c.Status.Devices) > 0 {
		t.Errorf("devices of a claim that has none: %+v", c.Status.Devices)
	}
	// A client that knows one address only changes both fields.
	if p := must[v1.Pod](a, "PATCH", web+"/status", merge, status(`"podIP":"192.0.2.7"`)); len(p.Status.PodIPs) != 1 || p.Status.PodIPs[0].IP != "192.0.2.7" {
		t.Errorf("addresses %+v", p.Status.PodIPs)
	}
	// Nobody removes a request by leaving it out where there is a limit, which is its default.
	p := must[v1.Pod](a, "PATCH", web+"/resize", strategic, `{"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":null}}}]}}`)
	if q := p.Spec.Containers[0].Resources.Requests[v1.ResourceMemory]; q.String() != "2Mi" {
		t.Errorf("memory %s", q.String())
	}
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
