package bridge

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// cpu is what this process has used, in all of its threads and in the kernel.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// One pod with a host port, and 50 at once: wall time for each, and CPU.
func BenchmarkAttach(b *testing.B) {
	for _, pods := range []int{1, 50} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			l := newLab(b)
			p := l.plugin(Config{})
			l.attach(p, "first")
			files := make([]*os.File, pods)
			var used time.Duration
			b.ResetTimer()
			for n := range b.N {
				b.StopTimer()
				for i := range pods {
					files[i] = l.namespace(fmt.Sprint("b", n, "-", i))
				}
				ctx := l.ctx()
				before := cpu(b)
				b.StartTimer()
				var all sync.WaitGroup
				for i := range pods {
					all.Go(func() {
						a := l.attachment(fmt.Sprint("b", n, "-", i), port("tcp", uint16(10000+i), 80))
						saved, err := p.Plan(ctx, a)
						if err == nil {
							_, err = p.SetUp(ctx, a, l.path(a.Name), saved, nil)
						}
						if err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
				b.StopTimer()
				used += cpu(b) - before
				for i := range pods {
					name := fmt.Sprint("b", n, "-", i)
					a := l.attachment(name, port("tcp", uint16(10000+i), 80))
					if err := p.TearDown(ctx, a, "", p.get(a.ID).bytes(), nil); err != nil {
						b.Fatal(err)
					}
					_ = files[i].Close()
					l.remove(name)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(used.Microseconds())/float64(b.N*pods), "cpu-us/pod")
		})
	}
}

// From "nft flush ruleset" to an answer of a host port.
func BenchmarkRestore(b *testing.B) {
	l := newLab(b)
	p, err := l.make(Config{})
	if err != nil {
		b.Fatal(err)
	}
	p.table.flags = 0
	l.recovered(p)
	g := l.attach(p, "web", port("tcp", 8080, 80))
	l.serve(g.ns, "tcp", ":80", "web")
	l.run(p)
	var worst time.Duration
	for b.Loop() {
		b.StopTimer()
		time.Sleep(2 * restorePause)
		b.StartTimer()
		start := time.Now()
		l.flushRuleset()
		l.eventually(func() bool {
			_, _, err := l.ask(l.outside, "tcp", "192.0.2.1:8080", 20*time.Millisecond)
			return err == nil
		}, "the host port does not come back")
		worst = max(worst, time.Since(start))
	}
	b.ReportMetric(float64(worst.Milliseconds()), "worst-ms")
}

func BenchmarkStatus(b *testing.B) {
	p := inMemory(b, "10.214.0.0/24")
	for b.Loop() {
		_ = p.Status()
	}
}

func BenchmarkPlan(b *testing.B) {
	p := inMemory(b, "10.214.0.0/24")
	a := (&lab{}).attachment("a", port("tcp", 80, 80))
	for b.Loop() {
		if _, err := p.Plan(b.Context(), a); err != nil {
			b.Fatal(err)
		}
		p.drop(a.ID)
	}
}
