package probe_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/probe/check"
)

// BenchmarkLoad500 runs 500 pods with two probes each of a period of 1 s over
// loopback, for 12 s: HTTP and TCP, the same with connections that end in order,
// or are kept, and exec through a fake that takes 5 ms. CPU and memory are those
// of the servers too.
func BenchmarkLoad500(b *testing.B) {
	b.Run("http+tcp", func(b *testing.B) { load(b, probe.Config{}, httpAndTCP) })
	b.Run("graceful", func(b *testing.B) { load(b, probe.Config{Graceful: true}, httpAndTCP) })
	b.Run("keepalive", func(b *testing.B) { load(b, probe.Config{KeepAlive: true}, httpAndTCP) })
	b.Run("exec", func(b *testing.B) { load(b, probe.Config{Exec: quick{}}, twoCommands) })
}

// quick is a runtime whose commands take 5 ms.
type quick struct{}

func (quick) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, err error) {
	time.Sleep(5 * time.Millisecond)
	return nil, nil, nil
}

func each(h v1.ProbeHandler) *v1.Probe {
	return &v1.Probe{ProbeHandler: h, PeriodSeconds: 1, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
}

func httpAndTCP(port int) (readiness, liveness *v1.Probe) {
	return each(v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt(port)}}),
		each(v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(port)}})
}

func twoCommands(int) (readiness, liveness *v1.Probe) {
	return execProbe("ready"), execProbe("live")
}

func load(b *testing.B, cfg probe.Config, probes func(port int) (readiness, liveness *v1.Probe)) {
	const pods, seconds = 500, 10
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go server.Serve(l)
	defer server.Close()

	reg := prometheus.NewRegistry()
	var failures atomic.Int64
	cfg.Metrics = reg
	cfg.OnChange = func(c probe.Change) {
		if c.Result == probe.Failure {
			failures.Add(1)
		}
	}
	for range b.N {
		idle := goruntime.NumGoroutine()
		base := rss()
		m, err := probe.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		for i := range pods {
			readiness, liveness := probes(port)
			pod := podOf(v1.Container{Name: "a", ReadinessProbe: readiness, LivenessProbe: liveness})
			pod.UID = types.UID(fmt.Sprint(i))
			pod.Name = fmt.Sprint("pod-", i)
			m.Observe(podlife.Life{UID: pod.UID}, pod, running())
			m.Observe(podlife.Life{UID: pod.UID}, pod, running("a", fmt.Sprint("c", i)))
		}
		time.Sleep(2 * time.Second) // the first round is over
		cpu, most := cpuTime(), 0
		for range seconds * 20 {
			time.Sleep(50 * time.Millisecond)
			most = max(most, goruntime.NumGoroutine()-idle)
		}
		b.ReportMetric(float64((cpuTime()-cpu).Milliseconds())/seconds/10, "cpu%")
		b.ReportMetric(float64(rss()-base)/1e6, "MB-rss")
		b.ReportMetric(float64(most), "goroutines-max")
		b.ReportMetric(float64(timeWait(port)), "time-wait")
		p50, p99, n := lateness(b, reg)
		b.ReportMetric(p50, "ms-late-p50<")
		b.ReportMetric(p99, "ms-late-p99<")
		b.ReportMetric(float64(n)/(seconds+2), "checks/s")
		b.ReportMetric(float64(failures.Load()), "failures")
		cancel()
		<-ended
		reg = prometheus.NewRegistry()
		cfg.Metrics = reg
		debug.FreeOSMemory()
	}
}

// lateness reads percentiles, as bounds of buckets in ms, out of the metric.
func lateness(b *testing.B, reg *prometheus.Registry) (p50, p99 float64, n uint64) {
	families, err := reg.Gather()
	if err != nil {
		b.Fatal(err)
	}
	i := 0
	for families[i].GetName() != "nodewright_probe_lateness_seconds" {
		i++
	}
	h := families[i].GetMetric()[0].GetHistogram()
	n = h.GetSampleCount()
	at := func(q float64) float64 {
		for _, bucket := range h.GetBucket() {
			if float64(bucket.GetCumulativeCount()) >= q*float64(n) {
				return bucket.GetUpperBound() * 1000
			}
		}
		return -1
	}
	return at(.5), at(.99), n
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func rss() int {
	b, _ := os.ReadFile("/proc/self/statm")
	var size, pages int
	_, _ = fmt.Sscan(string(b), &size, &pages)
	return pages * os.Getpagesize()
}

// timeWait counts the sockets in TIME_WAIT at a port.
func timeWait(port int) (n int) {
	b, _ := os.ReadFile("/proc/net/tcp")
	hex := fmt.Sprintf(":%04X", port)
	for line := range bytes.Lines(b) {
		if w := strings.Fields(string(line)); len(w) > 3 && w[3] == "06" && (strings.HasSuffix(w[1], hex) || strings.HasSuffix(w[2], hex)) {
			n++
		}
	}
	return n
}

// BenchmarkRound is what one round of a probe costs beside its check: from the
// agenda into a slot, through the counting, into the agenda again, among 10,000
// others.
func BenchmarkRound(b *testing.B) {
	e, err := check.NewEngine(check.EngineConfig{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) })
	ok := func(context.Context) (check.Outcome, string, error) { return check.Success, "", nil }
	for range 10_000 {
		e.Add(check.Spec{Timing: check.Timing{InitialDelay: time.Hour, Spread: check.SpreadFirst, Period: time.Hour}, Check: ok})
	}
	left, done := b.N, make(chan struct{})
	b.ReportAllocs()
	b.ResetTimer()
	e.Add(check.Spec{Timing: check.Timing{Period: time.Nanosecond}, Check: ok, Done: func(check.Round) bool {
		left--
		if left == 0 {
			close(done)
		}
		return left > 0
	}})
	<-done
	b.StopTimer()
	cancel()
	wg.Wait()
}

// BenchmarkObserve is what it costs to tell of a pod where nothing changed.
func BenchmarkObserve(b *testing.B) {
	m, err := probe.New(probe.Config{})
	if err != nil {
		b.Fatal(err)
	}
	readiness, liveness := httpAndTCP(80)
	pod := podOf(v1.Container{Name: "a", ReadinessProbe: readiness, LivenessProbe: liveness})
	obs := running("a", "c1")
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(podlife.Life{UID: pod.UID}, pod, obs)
	}
}
