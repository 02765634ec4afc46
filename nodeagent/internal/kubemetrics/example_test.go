package kubemetrics_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/nodeagent/internal/kubemetrics"
)

// A call is counted under the name that dashboards know.
func Example() {
	reg := prometheus.NewRegistry()
	m, err := kubemetrics.New(reg)
	if err != nil {
		log.Fatal(err)
	}
	server := kubeapitest.New() // a rest.Config from a kubeconfig leads to a real one
	client, err := kubeapi.New(kubeapi.Config{REST: server.Config(), Observer: m})
	if err != nil {
		log.Fatal(err)
	}
	_ = client.Get(context.Background(), kubeapi.Nodes, kubeapi.Key{Name: "edge-1"}, &v1.Node{})

	families, err := reg.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "rest_client_requests") {
			c := f.GetMetric()[0]
			fmt.Println(f.GetName(), c.GetLabel()[0].GetValue(), c.GetCounter().GetValue())
		}
	}
	// Output:
	// rest_client_requests_total 404 1
}
