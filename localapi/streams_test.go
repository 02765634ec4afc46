package localapi_test

import (
	"context"
	"net/http"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

// The proxy to a node reaches the node's own API by its name, with and without the port of that.
func TestNodeProxy(t *testing.T) {
	for port, own := range map[int32]string{0: "10250", 10260: "10260"} {
		a := start(t, &store.Memory{}, func(c *localapi.Config) {
			c.Kubelet = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.RequestURI())) })
			c.Describe = func(_ context.Context, n *v1.Node) error {
				n.Status.DaemonEndpoints.KubeletEndpoint.Port = port
				return nil
			}
		})
		until(t, "the node is described", func() bool { // while somebody writes, it is not
			return must[v1.Node](a, "GET", "/api/v1/nodes/node-1", "", nil).Status.DaemonEndpoints.KubeletEndpoint.Port == port
		})
		for _, name := range []string{"node-1", "node-1:" + own, "https:node-1:" + own, "https:node-1:", "http:node-1:" + own} {
			if code, text := a.do("GET", "/api/v1/nodes/"+name+"/proxy/configz?a=b", "", ""); code != 200 || text != "/configz?a=b" {
				t.Errorf("%s: %d %s", name, code, text)
			}
		}
		a.refused("GET", "/api/v1/nodes/node-1:22/proxy/", "", "", 400, metav1.StatusReasonBadRequest, "https:node-1:"+own)
		a.refused("GET", "/api/v1/nodes/ftp:node-1:22/proxy/", "", "", 400, metav1.StatusReasonBadRequest, "invalid node request")
		a.refused("GET", "/api/v1/nodes/other:10250/proxy/", "", "", 404, metav1.StatusReasonNotFound, "other")
	}
}
