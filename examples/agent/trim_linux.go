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

// When memory is given back: soon after the start, and then now and then.
const (
	firstTrim = 10 * time.Second
	nextTrims = time.Minute
)

// trimMemory gives memory back until ctx ends: the heap's free pages, and the
// pages of the program itself that only its start, or a burst long past, has
// read. An agent sits idle for nearly all of its life, and on a small machine
// those pages are better used by pods. They come back from the file when they
// are wanted.
func trimMemory(ctx context.Context) {
	t := time.NewTimer(firstTrim)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			debug.FreeOSMemory()
			dropProgramPages()
			t.Reset(nextTrims)
		}
	}
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
