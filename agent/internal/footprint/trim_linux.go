package footprint

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/programpages"
)

// When memory is given back: soon after the start, then now and then, and after
// whatever made it grow, once that is over.
const (
	firstTrim = 10 * time.Second
	nextTrims = time.Minute
	lookEvery = 5 * time.Second
	// grownBy is what is worth a trim before its time, in bytes; quiet is the CPU
	// of one look's time that an agent with many pods does not reach at rest.
	grownBy = 4 << 20
	quiet   = 100 * time.Millisecond
)

// Trim is agent.Process.Trim.
func (p *Process) Trim(ctx context.Context) {
	t := time.NewTimer(firstTrim)
	defer t.Stop()
	program := programpages.Find()
	defer bringSinglePages(program)()
	var trimmed time.Time
	var left memory
	var used time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			now, has := cpuTime(), resident()
			heap, pages := trimDue(time.Since(trimmed), left, has, now-used)
			// The heap first: collecting garbage reads much of the program.
			if heap {
				// What pools keep (sync.Pool) outlives one collection.
				runtime.GC()
				debug.FreeOSMemory()
				p.garbage.rest()
				trimmed = time.Now()
			}
			if pages {
				programpages.Drop(program)
				left, now = resident(), cpuTime()
			}
			used = now
			t.Reset(lookEvery)
		}
	}
}

// trimDue reports whether the heap's memory is given back, and the program's pages: by
// the time since the heap's was last, by how much either has grown since, and by the
// CPU since the last look. The heap's costs a collection of garbage, so that pages
// of the program, which each look at a server brings back, are no reason for it.
func trimDue(since time.Duration, left, has memory, used time.Duration) (heap, pages bool) {
	quiet := used < quiet
	heap = since >= nextTrims || quiet && has.own-left.own >= grownBy
	return heap, heap || quiet && has.files-left.files >= grownBy
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory is what is resident of this process, in bytes: its own, and pages of files.
type memory struct{ own, files int64 }

// resident is this process's memory, zero if that is not to be had. It is asked for at each
// look, and so uses as little of the program as may be: each page that it reads may bring the
// 15 around it.
func resident() memory {
	fd, err := unix.Open("/proc/self/statm", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return memory{}
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [128]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return memory{}
	}
	return memoryOf(buf[:n], int64(os.Getpagesize()))
}

// memoryOf reads a statm of proc(5): size, resident and shared, in pages, and more.
func memoryOf(statm []byte, page int64) memory {
	var fields [3]int64
	i := 0
	for _, b := range statm {
		switch {
		case b == ' ' || b == '\n':
			if i++; i == len(fields) {
				return memory{own: (fields[1] - fields[2]) * page, files: fields[2] * page}
			}
		case b >= '0' && b <= '9':
			fields[i] = 10*fields[i] + int64(b-'0')
		default:
			return memory{}
		}
	}
	return memory{}
}
