package localapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

// The Kubernetes API of one node, without a cluster and without an agent.
func ExampleNew() {
	api, err := localapi.New(localapi.Config{Node: "edge-1", Store: &store.Memory{}})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = api.Run(ctx) }()
	srv := httptest.NewServer(api.Handler(localapi.Root)) // or TLS, and localapi.Certificates
	defer srv.Close()

	post := func() (int, error) {
		resp, err := http.Post(srv.URL+"/api/v1/namespaces/default/configmaps", "application/json", strings.NewReader(`{"metadata":{"name":"conf"},"data":{"color":"blue"}}`))
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	code, err := post()
	for code == http.StatusServiceUnavailable && err == nil { // until the store is read
		code, err = post()
	}
	fmt.Println(code, err)
	// Output: 201 <nil>
}
