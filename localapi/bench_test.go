package localapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/localapi/store"
)

// BenchmarkList lists 1,000 objects.
func BenchmarkList(b *testing.B) {
	a := start(b, &store.Memory{})
	a.create(1000)
	for b.Loop() {
		if code, _ := a.do("GET", configMaps, "", ""); code != http.StatusOK {
			b.Fatal(code)
		}
	}
}

// BenchmarkWatch changes one of 1,000 objects until a watcher has seen the change.
func BenchmarkWatch(b *testing.B) {
	a := start(b, &store.Memory{})
	a.create(1000)
	from := must[v1.ConfigMapList](a, "GET", configMaps, "", nil).ResourceVersion
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+configMaps+"?watch=1&resourceVersion="+from, nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	events := bufio.NewScanner(resp.Body)
	events.Buffer(nil, 1<<20)
	for n := 0; b.Loop(); n++ {
		must[v1.ConfigMap](a, "PATCH", fmt.Sprintf("%s/many-%05d", configMaps, n%1000), "application/merge-patch+json", fmt.Sprintf(`{"data":{"n":"%d"}}`, n))
		if !events.Scan() {
			b.Fatal(events.Err())
		}
	}
}
