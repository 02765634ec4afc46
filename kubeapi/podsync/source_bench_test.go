package podsync_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/podmgr"
)

// BenchmarkMemory is what 100 pods with 200 objects of a kilobyte cost, each
// followed by a watch. The other end of the watches is in the same process, and
// counted too.
func BenchmarkMemory(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		srv := kubeapitest.New()
		text := string(make([]byte, 1024))
		for i := range 100 {
			c, s := fmt.Sprint("c", i), fmt.Sprint("s", i)
			srv.Create(configMap(c, text))
			srv.Create(secret(s, text))
			srv.Create(pod(fmt.Sprint("p", i), "configmap/"+c, "secret/"+s))
		}
		client, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
		if err != nil {
			b.Fatal(err)
		}
		src, err := podsync.NewSource(podsync.SourceConfig{Client: client, NodeName: "edge-1"})
		if err != nil {
			b.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		goroutines := runtime.NumGoroutine()
		ctx, cancel := context.WithCancel(b.Context())
		all, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			told := false
			_ = src.Run(ctx, func(s podmgr.Snapshot) {
				if !told && len(s.ConfigMaps)+len(s.Secrets) == 200 {
					told = true
					close(all)
				}
			})
		}()
		<-all
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1024, "heap-KiB")
		b.ReportMetric(float64(after.StackInuse-before.StackInuse)/1024, "stack-KiB")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")
		cancel()
		<-done
	}
}
