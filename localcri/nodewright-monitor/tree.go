//go:build linux

package main

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/kernelfile"
)

const maxTree = 4096 // limit of processes that are killed for one command

type member struct {
	pid       int
	startTime uint64
}

// killTree kills a child and its descendants. Each process is stopped before its children are
// listed, so that it creates no more, and so that their PIDs are not reused: a stopped parent does
// not reap its children.
func killTree(root int) {
	s, ok := statOf(root)
	if !ok {
		return
	}
	tree := []member{{root, s.startTime}}
	known := map[int]bool{root: true}
	_ = unix.Kill(root, unix.SIGSTOP)
	for range 8 { // a process may create others until it has stopped
		before := len(tree)
		for i := 0; i < len(tree) && len(tree) < maxTree; i++ {
			for _, pid := range childrenOf(tree[i].pid) {
				if known[pid] || len(tree) >= maxTree {
					continue
				}
				if c, ok := statOf(pid); ok && c.parent == tree[i].pid {
					known[pid] = true
					tree = append(tree, member{pid, c.startTime})
					_ = unix.Kill(pid, unix.SIGSTOP)
				}
			}
		}
		if len(tree) == before {
			break
		}
	}
	for _, m := range tree {
		if c, ok := statOf(m.pid); ok && c.startTime == m.startTime {
			_ = unix.Kill(m.pid, unix.SIGKILL)
		}
	}
}

// childrenOf returns the children of all threads of a process.
func childrenOf(pid int) []int {
	task := "/proc/" + strconv.Itoa(pid) + "/task"
	var pids []int
	for _, thread := range numbersIn(task) {
		b, _ := kernelfile.Read(task+"/"+strconv.Itoa(thread)+"/children", 4<<10, 64<<10)
		if b == nil {
			return childrenByScan(pid)
		}
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// childrenByScan returns the children of a process on kernels that do not list them.
func childrenByScan(parent int) []int {
	var pids []int
	for _, pid := range numbersIn("/proc") {
		if s, ok := statOf(pid); ok && s.parent == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// numbersIn lists the entries of a directory in /proc that are numbers.
func numbersIn(dir string) []int {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer closeFD(fd)
	buf := make([]byte, 8<<10)
	var numbers []int
	for len(numbers) < 1<<20 {
		n, err := unix.ReadDirent(fd, buf)
		if err != nil || n <= 0 {
			break
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if i, err := strconv.Atoi(name); err == nil {
				numbers = append(numbers, i)
			}
		}
	}
	return numbers
}
