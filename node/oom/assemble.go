package oom

import (
	"strconv"
	"strings"
)

// Assembler builds kills from the messages of the kernel's log. The kernel holds a lock
// while it writes about a kill, so that the lines of two kills are never mixed.
// Unrelated lines may be between the lines of one kill. The zero value is ready. It
// must not be used concurrently.
type Assembler struct {
	// cgroup and limit belong to the current report. A report may have several victims
	// (memory.oom.group).
	cgroup, limit string
	node, known   bool
	lastPID       int
}

// The marks of the lines that matter, from mm/oom_kill.c and mm/memcontrol.c.
const (
	markBegin  = " invoked oom-killer: "
	markWhere  = "oom-kill:constraint="             // since Linux 5.0
	markOld    = " killed as a result of limit of " // before
	markKilled = "Killed process "
	markMemcg  = "Memory cgroup out of memory"
	markNode   = "Out of memory"
)

// Add adds the next message of the kernel, and returns the kill that it completes.
func (a *Assembler) Add(message string) (Kill, bool) {
	switch {
	case strings.Contains(message, markBegin):
		*a = Assembler{}
	case strings.HasPrefix(message, markWhere):
		a.where(message)
	case strings.HasPrefix(message, "Task in ") && strings.Contains(message, markOld):
		from, limit, _ := strings.Cut(strings.TrimPrefix(message, "Task in "), markOld)
		*a = Assembler{cgroup: from, limit: limit, known: true}
	default:
		return a.killed(message)
	}
	return Kill{}, false
}

// where reads the line of fields. Values such as cgroup paths and process names may
// contain commas, so that the end of a value is found by the name of the next field.
func (a *Assembler) where(message string) {
	*a = Assembler{known: true}
	_, rest, _ := strings.Cut(message, ",mems_allowed=")
	// A process's name may look like a field; it follows the path.
	if i := strings.Index(rest, ",task_memcg="); i >= 0 {
		path := rest[i+len(",task_memcg="):]
		if j := strings.Index(path, ",task="); j >= 0 {
			a.cgroup = path[:j]
		}
		if j := strings.Index(rest[:i], ",oom_memcg="); j >= 0 {
			a.limit = rest[j+len(",oom_memcg=") : i]
		}
	}
	a.node = a.limit == ""
}

// killed reads the line that names a victim.
func (a *Assembler) killed(message string) (Kill, bool) {
	before, rest, ok := strings.Cut(message, markKilled)
	memcg := strings.HasPrefix(before, markMemcg)
	if !ok || (before != "" && !memcg && !strings.HasPrefix(before, markNode)) {
		return Kill{}, false
	}
	digits, rest, ok := strings.Cut(rest, " (")
	// Some kernels of 4.x write "12, UID 0, (name)".
	digits, _, _ = strings.Cut(digits, ",")
	pid, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return Kill{}, false
	}
	if pid <= 0 || pid == a.lastPID {
		return Kill{}, false // it is repeated for its group
	}
	a.lastPID = pid
	// The name is the process's own choice and may hold anything.
	sizes := strings.LastIndex(rest, "total-vm:")
	if sizes < 0 {
		sizes = len(rest)
	}
	end := strings.LastIndexByte(rest[:sizes], ')')
	if end < 0 {
		return Kill{}, false
	}
	k := Kill{
		PID: pid, Process: rest[:end], Count: 1,
		AnonRSS: kilobytes(rest[sizes:], "anon-rss:"), FileRSS: kilobytes(rest[sizes:], "file-rss:"),
		ShmemRSS: kilobytes(rest[sizes:], "shmem-rss:"),
	}
	switch {
	case a.known:
		k.Cgroup, k.Limit, k.Node = a.cgroup, a.limit, a.node
		k.PodUID, k.ContainerID = locate(a.cgroup)
	case !memcg:
		// Before Linux 5.0 a kill for the whole node names no cgroup.
		k.Node = true
	}
	return k, true
}

// kilobytes reads "name:123kB" and returns the number of bytes, or 0 if s does not contain it.
func kilobytes(s, name string) uint64 {
	_, s, ok := strings.Cut(s, name)
	if !ok {
		return 0
	}
	s, _, _ = strings.Cut(s, "kB")
	n, err := strconv.ParseUint(s, 10, 54) // so that it can be multiplied
	if err != nil {
		return 0
	}
	return n * 1024
}
