package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/nodewright/nodewright/internal/kernel"
)

// WriteGuard writes the process group whose leader is pid into a guard. A guard is the locked
// file that a plugin gets with each call. The plugin calls WriteGuard when it has started a
// process that inherited the guard and leads a process group of its own. The guard then has one
// line: the decimal pid, a space, and the start time of the process as in field 22 of
// /proc/PID/stat. A later call replaces the line. If guard is nil, nothing is written.
//
// If the agent ends and the group does not, the next agent waits for the guard's lock and then
// kills the group, so that no TearDown runs while an earlier SetUp still runs.
func WriteGuard(guard *os.File, pid int) error {
	if guard == nil {
		return nil
	}
	start, _, err := processTimes(pid)
	if err != nil {
		return fmt.Errorf("write process %d into the guard file: %w", pid, err)
	}
	line := fmt.Appendf(nil, "%d %d\n", pid, start)
	// Padded to the length of the longest line, so that a reader never sees parts of two lines.
	line = append(line, make([]byte, max(0, guardSize-len(line)))...)
	if _, err := guard.WriteAt(line, 0); err != nil {
		return fmt.Errorf("write process %d into the guard file: %w", pid, err)
	}
	return nil
}

// guardSize is enough for two numbers of 20 digits, a space and a line feed.
const guardSize = 48

// group is a process group named in a guard: its leader, and the leader's start
// time in kernel ticks since the boot.
type group struct {
	pid   int
	start uint64
}

var errNoGroup = errors.New("the plugin's guard file does not contain a process group")

// readGuard returns the group that a guard names.
func readGuard(guard *os.File) (group, error) {
	b, err := io.ReadAll(io.NewSectionReader(guard, 0, guardSize))
	if err != nil {
		return group{}, err
	}
	return parseGuard(b)
}

// parseGuard accepts only the format of WriteGuard, since every process that inherited the guard
// can write to it. In particular it refuses the numbers by which kill(2) would signal all
// processes, or the caller's own group.
func parseGuard(b []byte) (group, error) {
	line, rest, ok := bytes.Cut(b, []byte("\n"))
	pid, start, two := bytes.Cut(line, []byte(" "))
	if !ok || !two || len(bytes.Trim(rest, "\x00")) > 0 {
		return group{}, errNoGroup
	}
	p, err := strconv.ParseUint(string(pid), 10, 31)
	s, err2 := strconv.ParseUint(string(start), 10, 64)
	if err != nil || err2 != nil || p <= 1 {
		return group{}, errNoGroup
	}
	return group{int(p), s}, nil
}

// processTimes returns when a process was started, in the kernel's ticks since
// the boot, and the group that it belongs to.
func processTimes(pid int) (start uint64, pgrp int, err error) {
	p, err := kernel.This.Process(context.Background(), pid)
	if err != nil {
		return 0, 0, fmt.Errorf("read times of process %d: %w", pid, err)
	}
	return p.Start, p.Group, nil
}
