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
	var left int64
	var used time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			now := cpuTime()
			if trimDue(time.Since(trimmed), resident()-left, now-used) {
				debug.FreeOSMemory()
				dropProgramPages()
				trimmed, left, now = time.Now(), resident(), cpuTime()
				garbage.rest()
			}
			used = now
			t.Reset(lookEvery)
		}
	}
}

// trimDue reports whether memory is given back: by the time since that was done last,
// by how much memory has grown since then, and by the CPU since the last look.
func trimDue(since time.Duration, grown int64, used time.Duration) bool {
	return since >= nextTrims || grown >= grownBy && used < quiet
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is this process's memory in bytes, 0 if that is not to be had.
func resident() int64 {
	b, err := os.ReadFile("/proc/self/statm") // proc(5): size and resident, in pages
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
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
