package localapi_test

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node/status"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/localapi"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/statusmgr"
)

// BenchmarkPods measures what one pod costs a whole node with its API, beside 10 to 3,000
// others: to start, during five seconds of rest, and to
// remove. Containers are in memory; manifests, volumes and records are on a disk. CPU is
// that of the process, the runtime included.
//
//	go test -run '^$' -bench Pods -benchtime 1x ./nodeagent/localapi
func BenchmarkPods(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 3000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			start, rest, removal := &stage{}, &stage{}, &stage{}
			for range b.N {
				measurePods(b, n, start, rest, removal)
			}
			b.ReportMetric(0, "ns/op")
			start.report(b, "start", n)
			rest.report(b, "rest", n)
			removal.report(b, "removal", n)
		})
	}
}

// restTime is the length of the rest.
const restTime = 5 * time.Second

func measurePods(b *testing.B, pods int, start, rest, removal *stage) {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	dir := b.TempDir()
	manifests, made := filepath.Join(dir, "manifests"), filepath.Join(dir, "made")
	must(cmp.Or(os.Mkdir(manifests, 0o750), os.Mkdir(made, 0o750)))
	file := func(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("p%d.json", i)) }
	for i := range pods {
		must(os.WriteFile(file(made, i), fmt.Appendf(nil, manifest, i), 0o600))
	}

	flags := kubeletconfig.NewFlags()
	flags.RootDir, flags.Hostname = filepath.Join(dir, "root"), "bench"
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags})
	must(err)
	no, none := false, int32(0)
	conf.StaticPodPath, conf.PodLogsDir, conf.MaxPods = manifests, filepath.Join(dir, "logs"), 4000
	conf.EnableServer, conf.HealthzPort, conf.ResolverConfig = &no, &none, new(string)
	conf.FailSwapOn, conf.FailCgroupV1, conf.CgroupsPerQOS, conf.EnforceNodeAllocatable = &no, &no, &no, nil
	conf.ImageGCHighThresholdPercent, conf.EvictionHard = new(int32(100)), map[string]string{}
	conf.SyncFrequency.Duration = time.Hour // syncs would be counted as starts on a slow machine
	machine := nodeagent.Hardware{
		IPs: []netip.Addr{netip.AddrFrom4([4]byte{198, 18, 0, 1})}, NUMA: numa.Uniform(1, 1, 64, 1, 1<<40), Booted: time.Now(),
		Machine: status.Facts{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("1Ti")}},
	}

	var running, removed counter
	rt := critest.New()
	rt.Lean()
	rt.OfferAll()
	rt.SetImageFS(dir)
	rt.Around(nil, func(c critest.Call) error {
		if c.Method == "RemovePodSandbox" {
			removed.add(c.Target)
		}
		return nil
	})
	o := nodeagent.Options{
		Config: conf, Runtime: rt, Images: rt, Hardware: &machine, Parts: nodeagent.Standard(), Services: []nodeagent.Service{nodeagent.LocalSocket},
		Settings: nodeagent.Settings{Socket: filepath.Join(socketDir(b), "s"), LeaveHost: true, ClaimsDir: nodeagent.NoClaims},
		Agent: func(c *agent.Config) {
			c.Status.Sink = &countingSink{FileSink: c.Status.Sink.(*statusmgr.FileSink), running: &running}
		},
	}
	localapi.Attach(&o, localapi.Config{})
	n, err := nodeagent.New(b.Context(), o)
	must(err)
	ctx, end := context.WithCancel(b.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := n.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	defer ended.Wait()
	defer end()
	<-n.Up()

	start.measure(func() {
		for i := range pods {
			must(os.Rename(file(made, i), file(manifests, i)))
		}
		running.await(b, pods)
	})
	rest.measure(func() { time.Sleep(restTime) })
	removal.measure(func() {
		for i := range pods {
			must(os.Remove(file(manifests, i)))
		}
		removed.await(b, pods)
		for len(n.Pods()) > 0 {
			time.Sleep(10 * time.Millisecond)
		}
	})
}

const manifest = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p%d", "namespace": "default"}, "spec": {
  "terminationGracePeriodSeconds": 1, "volumes": [{"name": "v", "emptyDir": {}}],
  "containers": [{"name": "c", "image": "registry.example/app:1", "args": ["sleep", "forever"],
    "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "64Mi"}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}}`

// socketDir returns a directory with a short path.
func socketDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "pods")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// countingSink counts the pods that were shown as running.
type countingSink struct {
	*statusmgr.FileSink
	running *counter
}

// Update implements statusmgr.Sink.
func (s *countingSink) Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	err := s.FileSink.Update(ctx, pod, status)
	if status.Phase == v1.PodRunning {
		s.running.add(pod.Name)
	}
	return err
}

// counter counts different names.
type counter struct {
	names sync.Map
	n     atomic.Int64
}

func (c *counter) add(name string) {
	if _, had := c.names.LoadOrStore(name, true); !had {
		c.n.Add(1)
	}
}

func (c *counter) await(b *testing.B, want int) {
	b.Helper()
	for begin := time.Now(); c.n.Load() < int64(want); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 10*time.Minute {
			b.Fatalf("%d of %d after %v", c.n.Load(), want, time.Since(begin))
		}
	}
}

// stage is what a part of the lives of some pods took.
type stage struct {
	cpu   time.Duration
	bytes uint64
}

func (s *stage) measure(do func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := used()
	do()
	s.cpu += used() - cpu
	runtime.ReadMemStats(&after)
	s.bytes += after.TotalAlloc - before.TotalAlloc
}

func (s *stage) report(b *testing.B, name string, pods int) {
	b.Helper()
	b.ReportMetric(float64(s.cpu.Microseconds())/float64(pods*b.N), name+"-us/pod")
	b.ReportMetric(float64(s.bytes)/1024/float64(pods*b.N), name+"-KiB/pod")
}

// used is the CPU time of this process so far.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
