package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"syscall"
	"time"
)

// figures are measurements at one moment.
type figures struct {
	at           time.Time
	nodes, pods  int           // ready nodes, running pods
	cpu          time.Duration // CPU time of the process so far
	memory       int64         // resident memory in bytes
	goroutines   int
	server, runs int // numbers of calls so far: to the API server in memory, and to the runtimes
}

func (f *fleet) figures() figures {
	out := figures{at: time.Now(), cpu: used(), memory: resident(), goroutines: runtime.NumGoroutine()}
	for _, n := range f.nodes {
		select {
		case <-n.Ready():
			out.nodes++
		default:
		}
		out.pods += len(n.Runtime.MemoryUsed())
		out.runs += n.Runtime.CallsMade()
	}
	if f.api != nil {
		out.server = f.api.Calls()
	}
	return out
}

// report prints one line with the current figures. stage is the current stage of the run.
func (f *fleet) report(stage string) {
	now := f.figures()
	_, _ = fmt.Fprintf(f.out, "%6.1fs %-11s %d nodes, %d pods; %.0f MB, %.2f MB a node; %d goroutines; CPU %.1f s; calls: %d to the API server, %d to runtimes\n",
		now.at.Sub(f.began).Seconds(), stage, now.nodes, now.pods, mega(now.memory), mega(now.memory)/float64(len(f.nodes)), now.goroutines,
		now.cpu.Seconds(), now.server, now.runs)
}

// since prints the usage and the call rates from earlier until now.
func (f *fleet) since(earlier figures) {
	now := f.figures()
	took := now.at.Sub(earlier.at).Seconds()
	_, _ = fmt.Fprintf(f.out, "at rest for %.0f s: %.3f cores, %.1f calls a second to the API server, %.1f to runtimes, %.0f MB, %.2f MB a node\n",
		took, (now.cpu-earlier.cpu).Seconds()/took, float64(now.server-earlier.server)/took, float64(now.runs-earlier.runs)/took,
		mega(now.memory), mega(now.memory)/float64(len(f.nodes)))
}

func mega(n int64) float64 { return float64(n) / 1e6 }

// used returns the CPU time of this process so far.
func used() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident returns the resident memory of this process in bytes (proc_pid_statm(5)). It returns 0
// if the memory is not known.
func resident() int64 {
	raw, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(raw)
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// profiles writes profiles into a directory. The methods of a nil *profiles do nothing.
type profiles struct {
	dir string
	cpu *os.File
}

// profile starts the CPU profile. If dir is "", it starts none and returns nil.
func profile(dir string) (*profiles, error) {
	if dir == "" {
		return nil, nil //nolint:nilnil // no profile requested
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	cpu, err := os.Create(filepath.Join(dir, "cpu"))
	if err != nil {
		return nil, err
	}
	return &profiles{dir: dir, cpu: cpu}, pprof.StartCPUProfile(cpu)
}

func (p *profiles) end() {
	if p != nil {
		pprof.StopCPUProfile()
		_ = p.cpu.Close()
	}
}

// heap writes the profiles of the heap and of the goroutines.
func (p *profiles) heap() error {
	if p == nil {
		return nil
	}
	runtime.GC()
	for _, name := range []string{"heap", "goroutine"} {
		f, err := os.Create(filepath.Join(p.dir, name))
		if err != nil {
			return err
		}
		if err := pprof.Lookup(name).WriteTo(f, 0); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
