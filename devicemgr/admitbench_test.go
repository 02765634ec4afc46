package devicemgr_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/devicemgr"
)

// 100 pods, one after the other, are given one of 1,000 devices each, and give
// them back: an admission with its record, and its end, 100 times.
func BenchmarkAdmit(b *testing.B) {
	list := make([]devicemgr.Device, 1000)
	for i := range list {
		list[i] = devicemgr.Device{ID: fmt.Sprintf("device-%04d", i), Healthy: true}
	}
	m, err := devicemgr.New(devicemgr.Config{Store: newMemory()})
	if err != nil {
		b.Fatal(err)
	}
	if err := m.Restore(map[types.UID][]string{}); err != nil {
		b.Fatal(err)
	}
	listed := make(chan devicemgr.Change, 1000)
	m.Subscribe(func(c devicemgr.Change) {
		select {
		case listed <- c:
		default:
		}
	})
	go func() { _ = m.Run(b.Context()) }()
	for m.Offer(b.Context(), gpu, newPlugin(list...)) != nil { // until Run runs
	}
	<-listed
	pods := make([]*v1.Pod, 100)
	for i := range pods {
		pods[i] = pod(fmt.Sprint("p", i), "main=1")
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range pods {
			if err := m.Admit(b.Context(), p); err != nil {
				b.Fatal(err)
			}
		}
		for _, p := range pods {
			m.Release(p.UID)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/100, "µs/pod")
}
