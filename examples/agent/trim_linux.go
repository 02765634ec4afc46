package main

import (
	"bufio"
	"context"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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

// trimMemory gives memory back until ctx ends: the heap's free pages, and the
// pages of the program itself that only its start, or a burst long past, has
// read. An agent sits idle for nearly all of its life, and on a small machine
// those pages are better used by pods. They come back from the file when they
// are wanted.
func trimMemory(ctx context.Context) {
	t := time.NewTimer(firstTrim)
	defer t.Stop()
	var trimmed time.Time
	var left memory
	var used time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			now, has := cpuTime(), resident()
			heap, program := trimDue(time.Since(trimmed), left, has, now-used)
			// The heap first: collecting garbage reads much of the program.
			if heap {
				debug.FreeOSMemory()
				garbage.rest()
				trimmed = time.Now()
			}
			if program {
				dropProgramPages()
			}
			if heap || program {
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
func trimDue(since time.Duration, left, has memory, used time.Duration) (heap, program bool) {
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

// resident is this process's memory, zero if that is not to be had.
func resident() memory {
	b, err := os.ReadFile("/proc/self/statm") // proc(5): size, resident and shared, in pages
	if err != nil {
		return memory{}
	}
	fields := strings.Fields(string(b))
	if len(fields) < 3 {
		return memory{}
	}
	all, err1 := strconv.ParseInt(fields[1], 10, 64)
	files, err2 := strconv.ParseInt(fields[2], 10, 64)
	if err1 != nil || err2 != nil {
		return memory{}
	}
	page := int64(os.Getpagesize())
	return memory{own: (all - files) * page, files: files * page}
}

// dropProgramPages lets go of the clean pages of this program's file. Only
// mappings that cannot be written are touched: what is in them is what is in
// the file (madvise(2), MADV_DONTNEED on a private file mapping).
func dropProgramPages() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		// proc(5): address, permissions, offset, device, inode, path.
		fields := strings.Fields(sc.Text())
		if len(fields) < 6 || fields[5] != exe || strings.Contains(fields[1], "w") {
			continue
		}
		from, to, ok := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if ok && err1 == nil && err2 == nil && end > start {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), unix.MADV_DONTNEED)
		}
	}
}
