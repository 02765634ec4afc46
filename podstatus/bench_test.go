package podstatus

import (
	"fmt"
	"testing"
	"time"

	"github.com/nodewright/nodewright/cri/observed"
)

// The status of a pod with ten containers, each restarted once.
func BenchmarkOf(b *testing.B) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	names := make([]string, 10)
	obs := &observed.Pod{UID: "u", Sandboxes: []observed.Sandbox{{ID: "s", State: observed.Running, IPs: []string{"10.0.0.1"}}}}
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
		obs.Containers = append(obs.Containers,
			observed.Container{ID: names[i] + "-1", Name: names[i], SandboxID: "s", State: observed.Running, RestartCount: 1, CreatedAt: now, StartedAt: now},
			observed.Container{ID: names[i] + "-0", Name: names[i], SandboxID: "s", State: observed.Exited, ExitCode: new(int32(1)), CreatedAt: now.Add(-time.Minute), FinishedAt: now.Add(-time.Second)})
	}
	yes := func(string) bool { return true }
	in := Input{Pod: podOf(always, nil, names...), Observed: obs, Started: yes, Ready: yes, Now: now}
	st := Of(in)
	in.Previous = &st
	b.ReportAllocs()
	for b.Loop() {
		Of(in)
	}
}
