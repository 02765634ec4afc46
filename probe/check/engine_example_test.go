package check_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/nodewright/nodewright/probe/check"
)

// A plain process, here a server in this one, is asked whether it is ready.
// There is no pod, no container and no runtime.
func Example() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	asked := 0
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			http.Error(w, "warming up", http.StatusServiceUnavailable)
		}
	}))

	e, err := check.NewEngine(check.EngineConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go e.Run(ctx)

	ready := make(chan bool)
	e.Add(check.Spec{
		Timing: check.Timing{Period: 10 * time.Millisecond, FailureThreshold: 1},
		Check:  check.HTTP{URL: &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/ready"}}.Check,
		Done: func(r check.Round) (again bool) {
			fmt.Println(r.Verdict, r.Output)
			if r.Verdict == check.Success {
				close(ready)
			}
			return r.Verdict != check.Success
		},
	})
	<-ready
	// Output:
	// failure HTTP probe failed with statuscode: 503
	// failure HTTP probe failed with statuscode: 503
	// success
}
