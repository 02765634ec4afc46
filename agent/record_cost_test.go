package agent_test

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/probe/check"
)

var recordCost = flag.Bool("record-cost", false, "print what recording costs (TestRecordCost)")

// TestRecordCost prints the CPU time, the heap and the disk space of an agent for three minutes with 100 and
// 1,000 pods, with and without a record. The busy ones have a readiness probe each second, and each is restarted every two minutes.
// The runtime is in this process, and counts in all runs.
func TestRecordCost(t *testing.T) {
	if !*recordCost {
		t.Skip("run with -record-cost")
	}
	const duration = 3 * time.Minute
	for _, pods := range []int{100, 1000} {
		for _, busy := range []bool{false, true} {
			for _, on := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					n := agenttest.New(t)
					for _, name := range []v1.ResourceName{v1.ResourcePods, v1.ResourceCPU} {
						n.Config.Node.Capacity[name] = resource.MustParse("2000")
					}
					n.Config.Pods.CrashBackoff = podruntime.DoublingBackoff{First: 10 * time.Second, Max: 10 * time.Second}
					n.Config.Probes.Network = func(context.Context, *v1.Probe) (check.Outcome, string, error) { return check.Success, "", nil }
					dir := filepath.Join(t.TempDir(), "record")
					if on {
						recordInto(t, n, dir)
					}
					n.Start()
					var all []*v1.Pod
					for i := range pods {
						c := agenttest.Container("c")
						if busy {
							c = agenttest.Container("c", "sleep", fmt.Sprintf("%ds", 60+i%120), "exit", "1")
							c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(1)}}, PeriodSeconds: 1}
						}
						all = append(all, agenttest.Pod(fmt.Sprintf("web-%d", i), c))
					}
					n.Want(all...)
					time.Sleep(2 * time.Minute)
					synctest.Wait()
					runtime.GC()
					size := recordSize(t, dir)
					before := cpu(t)
					time.Sleep(duration)
					synctest.Wait()
					used := cpu(t) - before
					runtime.GC()
					var heap runtime.MemStats
					runtime.ReadMemStats(&heap)
					t.Logf("%4d pods, busy %-5v record %-5v: %8v CPU in %v, %.3f %% of a CPU; %d KiB of heap, %d bytes recorded",
						pods, busy, on, used.Round(time.Millisecond), duration, 100*used.Seconds()/duration.Seconds(), heap.HeapAlloc>>10, recordSize(t, dir)-size)
				})
			}
		}
	}
}

func cpu(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
