package network_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nodewright/nodewright/network"
)

// comparison asks for rounds of so many pods that come and go at once.
type comparison struct {
	site
	Pods, Rounds int
	Count        bool // the programs that are run, which costs time
}

// compared are its results.
type compared struct {
	Attach, Detach []time.Duration // of each pod
	Up, Down       []time.Duration // of each round: all pods
	CPU            time.Duration   // of the process and its children
	Faults         int64           // of pages, of the children: none without a child
	Programs       int
}

var compareJob = newJob("compare", compare)

func compare(c comparison) error {
	if err := bootUp(c.Dir); err != nil {
		return err
	}
	count := func() (int, error) { return 0, nil }
	if c.Count {
		var err error
		if count, err = countPrograms(&c.site); err != nil {
			return err
		}
	}
	n, err := c.network("boot")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	go func() { _ = n.Run(ctx) }()
	var r compared
	each := func(round int, do func(a network.Attachment) error) (took []time.Duration, all time.Duration, err error) {
		took, errs := make([]time.Duration, c.Pods), make([]error, c.Pods)
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range c.Pods {
			wg.Go(func() {
				begin := time.Now()
				errs[i] = do(network.Attachment{ID: fmt.Sprintf("r%d-%d", round, i), Ports: []network.Port{
					{Protocol: "tcp", HostPort: uint16(8000 + i), ContainerPort: 80}}})
				took[i] = time.Since(begin)
			})
		}
		wg.Wait()
		return took, time.Since(begin), errors.Join(errs...)
	}
	for n.Status() != nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	var cpu, faults int64
	var programs int
	// Of those that come first at once, portmap fails one: it looks for its chains
	// and then makes them.
	if _, err := n.Attach(ctx, network.Attachment{ID: "first", Ports: []network.Port{{Protocol: "tcp", HostPort: 7999, ContainerPort: 80}}}); err != nil {
		return err
	}
	for round := range c.Rounds + 1 {
		up, allUp, err := each(round, func(a network.Attachment) error { _, err := n.Attach(ctx, a); return err })
		if err != nil {
			return err
		}
		down, allDown, err := each(round, func(a network.Attachment) error { return n.Detach(ctx, a.ID) })
		if err != nil {
			return err
		}
		if round == 0 { // to be warm
			cpu, faults = used()
			if programs, err = count(); err != nil {
				return err
			}
			continue
		}
		r.Attach, r.Detach = append(r.Attach, up...), append(r.Detach, down...)
		r.Up, r.Down = append(r.Up, allUp), append(r.Down, allDown)
	}
	after, faultsAfter := used()
	all, err := count()
	if err != nil {
		return err
	}
	r.CPU, r.Faults, r.Programs = time.Duration(after-cpu), faultsAfter-faults, all-programs
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(b)
	return err
}

// used is the CPU time of this process and of the children that have ended, and
// their page faults.
func used() (cpu, faults int64) {
	var self, children syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &self)
	_ = syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children)
	return self.Utime.Nano() + self.Stime.Nano() + children.Utime.Nano() + children.Stime.Nano(), children.Minflt
}

// countPrograms puts scripts before the plugins, and before what those run, that
// note that they ran.
func countPrograms(s *site) (count func() (int, error), err error) {
	dir, note := s.path("counting"), s.path("ran")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	wrap := func(name, target string) error {
		script := fmt.Sprintf("#!/bin/sh\necho %s >> %s\nexec %s \"$@\"\n", name, note, target)
		return os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700)
	}
	for _, name := range publicPlugins {
		err = errors.Join(err, wrap(name, filepath.Join(s.Plugins, name)))
	}
	for _, name := range []string{"iptables", "ip6tables", "nft", "conntrack", "sysctl"} {
		for _, in := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"} {
			if _, statErr := os.Stat(filepath.Join(in, name)); statErr == nil {
				err = errors.Join(err, wrap(name, filepath.Join(in, name)))
				break
			}
		}
	}
	s.Plugins = dir
	return func() (int, error) {
		b, err := os.ReadFile(note)
		if errors.Is(err, os.ErrNotExist) {
			return 0, nil
		}
		return strings.Count(string(b), "\n"), err
	}, errors.Join(err, os.Setenv("PATH", dir+":"+os.Getenv("PATH")))
}

func percentile(all []time.Duration, p int) float64 {
	s := slices.Sorted(slices.Values(all))
	return float64(s[min(len(s)*p/100, len(s)-1)].Microseconds()) / 1000
}

// The embedded bridge beside the public plugins, on machines of the same kind:
// pods with a host port that come and go, one at a time and 50 at once. Times
// are milliseconds; those of p50 and p99 are a pod's, and all-ms is until the
// last of a round is done.
func BenchmarkCompare(b *testing.B) {
	plugins := needMachine(b, true)
	for _, pods := range []int{1, 50} {
		for _, kind := range []string{"bridge", "cni"} {
			b.Run(fmt.Sprintf("%s/%d", kind, pods), func(b *testing.B) {
				ask := func(count bool, rounds int) (r compared) {
					c := comparison{site{kind, b.TempDir(), plugins}, pods, rounds, count}
					if err := json.Unmarshal(onMachine(b, compareJob, c), &r); err != nil {
						b.Fatal(err)
					}
					return r
				}
				r := ask(false, b.N)
				all := float64(b.N * pods)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(percentile(r.Attach, 50), "attach-p50-ms")
				b.ReportMetric(percentile(r.Attach, 99), "attach-p99-ms")
				b.ReportMetric(percentile(r.Detach, 50), "detach-p50-ms")
				b.ReportMetric(percentile(r.Detach, 99), "detach-p99-ms")
				b.ReportMetric(percentile(r.Up, 50), "attach-all-ms")
				b.ReportMetric(percentile(r.Down, 50), "detach-all-ms")
				b.ReportMetric(float64(r.CPU.Microseconds())/1000/all, "cpu-ms/pod")
				b.ReportMetric(float64(r.Faults)/all, "child-faults/pod")
				b.ReportMetric(float64(ask(true, 1).Programs)/float64(pods), "programs/pod")
			})
		}
	}
}

// The bridge runs no program at all, and the chain does: the measure works.
func TestTheBridgeRunsNoProgram(t *testing.T) {
	plugins := needMachine(t, true)
	for kind, none := range map[string]bool{"bridge": true, "cni": false} {
		if testing.Short() && !none {
			continue // some hundred programs
		}
		for _, counting := range []bool{false, true} {
			var r compared
			if err := json.Unmarshal(onMachine(t, compareJob, comparison{site{kind, t.TempDir(), plugins}, 2, 1, counting}), &r); err != nil {
				t.Fatal(err)
			}
			if (r.Faults == 0) != none || counting && (r.Programs == 0) != none {
				t.Errorf("%s: %d programs, %d faults of children", kind, r.Programs, r.Faults)
			}
		}
	}
}
