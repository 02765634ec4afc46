//go:build linux

package monitor_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/localcri/internal/monitor"
)

// cpu is the processor time that a process has used.
func cpu(t testing.TB, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	mustNot(t, err)
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// BenchmarkLogThroughput says how fast a monitor writes a log, by the clock and
// by the time that it takes of a processor.
func BenchmarkLogThroughput(b *testing.B) {
	for _, size := range []int{20, 100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p := newPod(b)
			const bytes = 400 << 20
			line := strings.Repeat("x", size-1)
			for i := 0; b.Loop(); i++ {
				c := p.container("a"+strconv.Itoa(i), fmt.Sprintf("yes %s | head -c %d", line, bytes))
				c.Log = p.dir + "/log"
				before, begin := cpu(b, p.c.PID()), time.Now()
				p.start(c)
				exit(b, p.c, c.ID)
				b.ReportMetric(bytes/1e6/time.Since(begin).Seconds(), "MB/s")
				b.ReportMetric(bytes/1e6/(cpu(b, p.c.PID())-before).Seconds(), "MB/cpu-s")
				_ = os.Remove(c.Log)
				b.SetBytes(bytes)
			}
			b.ReportMetric(float64(rollup(b, p.c.PID())["Rss"]), "kB-RSS")
		})
	}
}

// BenchmarkExec is a process from the call to its code, with an executor that
// costs little.
func BenchmarkExec(b *testing.B) {
	p := newPod(b)
	p.start(p.container("a", "exec sleep 1000"))
	e := p.exec("a", "x", "")
	e.Argv = []string{"/bin/sh", "-c", ": & echo $! >" + e.PIDFile + "; exec true"}
	ctx := background(b)
	for b.Loop() {
		proc, err := p.c.Exec(ctx, e)
		mustNot(b, err)
		_, err = proc.Wait(ctx)
		mustNot(b, err)
	}
	b.ReportMetric(float64(rollup(b, p.c.PID())["Rss"]), "kB-RSS")
}

// BenchmarkRuncExec is the same with runc.
func BenchmarkRuncExec(b *testing.B) {
	p := newRuncPod(b)
	p.start(p.container("a", "exec sleep 1000", nil))
	e := p.exec("a", "x", "/bin/true")
	ctx := background(b)
	for b.Loop() {
		proc, err := p.c.Exec(ctx, e)
		mustNot(b, err)
		_, err = proc.Wait(ctx)
		mustNot(b, err)
	}
}

// BenchmarkExitLatency is the time from a kill to its event.
func BenchmarkExitLatency(b *testing.B) {
	p := newPod(b)
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		id := "a" + strconv.Itoa(i)
		s := p.start(p.container(id, "exec sleep 1000"))
		b.StartTimer()
		proc, err := os.FindProcess(s.PID)
		mustNot(b, err)
		_ = proc.Kill()
		exit(b, p.c, id)
		b.StopTimer()
		mustNot(b, p.c.Forget(background(b), id))
		b.StartTimer()
	}
}

// BenchmarkLaunch is a monitor from its start to its first answer.
func BenchmarkLaunch(b *testing.B) {
	p := newPod(b)
	for i := 0; b.Loop(); i++ {
		c, err := monitor.Launch(background(b), p.cfg, "x"+strconv.Itoa(i))
		mustNot(b, err)
		b.StopTimer()
		mustNot(b, c.Quit(background(b)))
		b.StartTimer()
	}
}
