//go:build liveheap

// The tests of internal/hostile build the agent with the tag liveheap, to read the size of the
// live heap over HTTP.

package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"runtime"

	"github.com/nodewright/nodewright/internal/profile"
)

func init() {
	path := os.Getenv("NODEWRIGHT_LIVE_HEAP")
	if path == "" {
		return
	}
	runtime.MemProfileRate = 16 << 10 // bytes between samples
	l, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/pprof/", profile.Handler("/debug/pprof/"))
	mux.HandleFunc("/live", func(w http.ResponseWriter, _ *http.Request) {
		for range 3 { // a sync.Pool keeps its content for two collections
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_ = json.NewEncoder(w).Encode(map[string]uint64{
			"heap": m.HeapAlloc, "inuse": m.HeapInuse, "stacks": m.StackInuse, "objects": m.HeapObjects,
			"goroutines": uint64(runtime.NumGoroutine()),
		})
	})
	go func() { _ = http.Serve(l, mux) }()
}
