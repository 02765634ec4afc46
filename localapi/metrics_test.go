package localapi_test

import (
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

type metricsList struct {
	Kind  string
	Items []struct {
		Metadata   metav1.ObjectMeta
		Timestamp  metav1.Time
		Window     string
		Usage      v1.ResourceList
		Containers []struct {
			Name  string
			Usage v1.ResourceList
		}
	}
}

// kubectl top asks metrics.k8s.io: the figures are those of the node's summary, of pods
// that are there alone.
func TestMetrics(t *testing.T) {
	text, first := "", ""
	a := start(t, &store.Memory{}, func(c *localapi.Config) {
		c.Kubelet = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Method + " " + r.RequestURI; got != "GET /stats/summary?only_cpu_and_memory=true" {
				t.Errorf("the node is asked for %s", got)
			}
			if first != "" {
				_, _ = w.Write([]byte(first))
				first = ""
				return
			}
			if text == "" {
				http.Error(w, "not yet", http.StatusServiceUnavailable)
				return
			}
			_, _ = w.Write([]byte(text))
		})
	})
	const base = "/apis/metrics.k8s.io/v1beta1"
	a.refused("GET", base+"/nodes", "", "", 503, metav1.StatusReasonServiceUnavailable, "not yet")
	pod := must[v1.Pod](a, "POST", pods, asJSON, `{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	text = `{"node":{"cpu":{"time":"2026-11-23T10:00:00Z","usageNanoCores":250000000},"memory":{"workingSetBytes":1048576}},"pods":[
		{"podRef":{"name":"web","namespace":"default","uid":"` + string(pod.UID) + `"},"containers":[
			{"name":"c","cpu":{"time":"2026-11-23T10:00:01Z","usageNanoCores":1500000},"memory":{"workingSetBytes":2048}},
			{"name":"new","cpu":{"time":"2026-11-23T10:00:01Z"},"memory":{"workingSetBytes":2048}}]},
		{"podRef":{"name":"web","namespace":"default","uid":"gone"},"containers":[]},
		{"podRef":{"name":"other","namespace":"default","uid":"x"},"containers":[{"name":"c","cpu":{"usageNanoCores":1},"memory":{"workingSetBytes":1}}]}]}`

	first = `{"node":{"cpu":{"time":"2026-11-23T10:00:00Z"},"memory":{"workingSetBytes":1048576}}}` // no rate yet
	nodes := must[metricsList](a, "GET", base+"/nodes", "", nil)
	if len(nodes.Items) != 1 || nodes.Kind != "NodeMetricsList" {
		t.Fatalf("%+v", nodes)
	}
	if n := nodes.Items[0]; n.Metadata.Name != "node-1" || n.Usage.Cpu().String() != "250m" || n.Usage.Memory().String() != "1Mi" || n.Window != "10s" {
		t.Errorf("%+v", n)
	}
	for path, want := range map[string]int{
		base + "/pods": 1, base + "/namespaces/default/pods": 1, base + "/namespaces/other/pods": 0, base + "/pods?labelSelector=app%3Dweb": 1,
		base + "/pods?labelSelector=app%3Dx": 0, base + "/pods?fieldSelector=metadata.name%3Dweb": 1, base + "/pods?fieldSelector=metadata.name%3Dx": 0,
		base + "/nodes?labelSelector=app%3Dx": 0,
	} {
		list := must[metricsList](a, "GET", path, "", nil)
		if len(list.Items) != want {
			t.Errorf("%s: %+v, want %d", path, list, want)
		}
		if want == 1 {
			if c := list.Items[0].Containers; len(c) != 1 || c[0].Name != "c" || c[0].Usage.Cpu().String() != "1500u" || c[0].Usage.Memory().Value() != 2048 {
				t.Errorf("%s: %+v", path, c)
			}
		}
	}
	must[metav1.PartialObjectMetadata](a, "GET", base+"/namespaces/default/pods/web", "", nil)
	must[metav1.PartialObjectMetadata](a, "GET", base+"/nodes/node-1", "", nil)
	a.refused("GET", base+"/nodes/node-2", "", "", 404, metav1.StatusReasonNotFound, "node-2")
	a.refused("GET", base+"/namespaces/default/pods/other", "", "", 404, metav1.StatusReasonNotFound, "other")
	a.refused("GET", base+"/pods?fieldSelector=status.phase%3DRunning", "", "", 400, metav1.StatusReasonBadRequest, "metadata.name")
	a.refused("GET", base+"/pods?watch=1", "", "", 405, metav1.StatusReasonMethodNotAllowed, "get, list")
	a.refused("DELETE", base+"/nodes/node-1", "", "", 405, metav1.StatusReasonMethodNotAllowed, "get, list")

	for name, damaged := range map[string]string{"no JSON": "{", "too much": `{"pods":[` + strings.Repeat(" ", 33<<20) + "]}"} {
		text = damaged
		if code, answer := a.do("GET", base+"/pods", "", ""); code != 500 {
			t.Errorf("%s: %d %.200s", name, code, answer)
		}
	}
	if code, answer := a.do("GET", "/apis/metrics.k8s.io/v1beta1", "", ""); code != 200 || !strings.Contains(answer, `"kind":"PodMetrics"`) {
		t.Errorf("discovery: %d %s", code, answer)
	}
}
