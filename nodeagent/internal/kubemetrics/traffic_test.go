package kubemetrics_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
)

// What goes to and fro is measured, each request that is made again is counted, and
// every wait for the budget of calls.
func TestTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, c, _, reg := setup(t)
		srv.Create(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}})
		srv.Fail(kubeapitest.Refuse(1, kubeapitest.TooMany(time.Second), kubeapitest.Any))
		n := &v1.Node{}
		if err := c.Get(t.Context(), kubeapi.Nodes, kubeapi.Key{Name: "edge-1"}, n); err != nil {
			t.Fatal(err)
		}
		n.Labels = map[string]string{"a": "b"}
		if err := c.Update(t.Context(), kubeapi.Nodes, kubeapi.Key{Name: "edge-1"}, n, n); err != nil {
			t.Fatal(err)
		}
		w, err := c.Watch(t.Context(), kubeapi.Nodes, "", metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.Stop()
		synctest.Wait()
		shows(t, reg, "rest_client_request_size", "rest_client_request_size_bytes{host=kubeapitest,verb=PUT} 1")
		shows(t, reg, "rest_client_response_size", `
rest_client_response_size_bytes{host=kubeapitest,verb=GET} 2
rest_client_response_size_bytes{host=kubeapitest,verb=PUT} 1`)
		shows(t, reg, "rest_client_request_retries", "rest_client_request_retries_total{code=429,host=kubeapitest,verb=GET} 1")
		shows(t, reg, "rest_client_rate_limiter", `
rest_client_rate_limiter_duration_seconds{host=kubeapitest,verb=GET} 2
rest_client_rate_limiter_duration_seconds{host=kubeapitest,verb=PUT} 1`)
	})
}
