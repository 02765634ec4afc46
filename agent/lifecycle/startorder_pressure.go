package lifecycle

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/safefile"
)

// Shares of time that make a machine busy: those in which some task stalled (the line
// "some" of Documentation/accounting/psi.rst), and without such figures that in which
// CPUs worked.
const (
	busyStalled = 0.20
	busyWorking = 0.90
)

// maxProc is more than the files below /proc have that are read, in bytes; /proc/stat
// has a line for each CPU and a long one of interrupts.
const maxProc = 1 << 20

// gauge measures the machine from look to look. It is for one goroutine.
type gauge struct {
	proc string // /proc
	last reading
}

// reading is what the kernel has counted since it started.
type reading struct {
	at      time.Time
	stalled map[string]time.Duration // by resource; nil: the kernel does not count that
	working float64                  // of all, in ticks
	all     float64
}

// busy reports whether the machine was busy since the look before, and by what. The
// first look, and one that cannot read anything, say that it was.
func (g *gauge) busy() (bool, string) {
	now, before := read(g.proc), g.last
	g.last = now
	if before.at.IsZero() {
		return true, "its load is not known yet"
	}
	if now.stalled != nil && before.stalled != nil {
		for _, resource := range resources {
			if share := float64(now.stalled[resource]-before.stalled[resource]) / float64(now.at.Sub(before.at)); share > busyStalled {
				return true, fmt.Sprintf("tasks stalled for %s for %.0f %% of the time", resource, share*100)
			}
		}
		return false, ""
	}
	if all := now.all - before.all; before.all > 0 && all > 0 {
		share := (now.working - before.working) / all
		return share > busyWorking, fmt.Sprintf("its CPUs worked for %.0f %% of the time", share*100)
	}
	return true, "its load cannot be read"
}

// resources are the files of /proc/pressure.
var resources = []string{"cpu", "io", "memory"}

func read(proc string) reading {
	r := reading{at: time.Now(), stalled: map[string]time.Duration{}}
	for _, resource := range resources {
		b, err := safefile.ReadFile(filepath.Join(proc, "pressure", resource), maxProc)
		d, ok := parsePressure(b)
		if err != nil || !ok {
			r.stalled = nil
			break
		}
		r.stalled[resource] = d
	}
	if r.stalled == nil {
		if b, err := safefile.ReadFile(filepath.Join(proc, "stat"), maxProc); err == nil {
			r.working, r.all = parseStat(b)
		}
	}
	return r
}

// parsePressure finds how long some task stalled:
//
//	some avg10=0.00 avg60=0.00 avg300=0.00 total=1234
//
// in microseconds.
func parsePressure(b []byte) (time.Duration, bool) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	f := strings.Fields(string(line))
	if len(f) == 0 || f[0] != "some" {
		return 0, false
	}
	total, ok := strings.CutPrefix(f[len(f)-1], "total=")
	n, err := strconv.ParseInt(total, 10, 64)
	if !ok || err != nil || n < 0 || n > int64(1<<62)/int64(time.Microsecond) {
		return 0, false
	}
	return time.Duration(n) * time.Microsecond, true
}

// parseStat reads the first line of /proc/stat: the ticks of all CPUs, of which those
// of idle and iowait are no work (proc_stat(5)).
func parseStat(b []byte) (working, all float64) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	f := strings.Fields(string(line))
	if len(f) < 6 || f[0] != "cpu" {
		return 0, 0
	}
	for i, v := range f[1:min(len(f), 9)] { // what follows is counted before
		n, err := strconv.ParseUint(v, 10, 63)
		if err != nil {
			return 0, 0
		}
		all += float64(n)
		if i != 3 && i != 4 {
			working += float64(n)
		}
	}
	return working, all
}
