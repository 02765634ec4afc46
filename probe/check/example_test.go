package check_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/nodewright/nodewright/probe/check"
)

// A check of an HTTP server, with a kubelet's judgement of the answer.
func ExampleHTTP() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			http.Error(w, "no", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	for _, path := range []string{"/healthz", "/other"} {
		u, err := url.Parse(server.URL + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		outcome, _, err := check.HTTP{URL: u}.Check(context.Background())
		fmt.Println(outcome, err)
	}
	// Output:
	// success <nil>
	// failure <nil>
}
