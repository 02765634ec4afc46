package listeners

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/nodewright/nodewright/internal/podcgroup"
)

// listening is the state of a listening socket in /proc/net/tcp.
const listening = 0x0A

// TCP returns who listens at a TCP port in the network namespace of this process: the UID of the
// pod, "" if it is no pod's, and the process in words; both are "" if nobody does, or it cannot
// be seen.
func TCP(port int32) (podUID, process string) { return at("/proc", port) }

func at(proc string, port int32) (podUID, process string) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return "", ""
	}
	sockets := map[string]bool{}
	//nolint:staticcheck // sock_diag, which it advises, is another dependency for a question that people ask
	for _, read := range []func() (procfs.NetTCP, error){fs.NetTCP, fs.NetTCP6} {
		lines, err := read()
		if err != nil {
			continue // no IPv6, for example
		}
		for _, l := range lines {
			if l.St == listening && l.LocalPort == uint64(port) {
				sockets["socket:["+strconv.FormatUint(l.Inode, 10)+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return "", ""
	}
	procs, err := fs.AllProcs()
	if err != nil {
		return "", ""
	}
	for _, p := range procs {
		targets, err := p.FileDescriptorTargets()
		if err != nil {
			continue // it has ended
		}
		for _, t := range targets {
			if sockets[t] {
				return describe(p)
			}
		}
	}
	return "", "a process that the agent cannot see"
}

func describe(p procfs.Proc) (podUID, process string) {
	name, err := p.Comm()
	if err != nil {
		name = "unknown"
	}
	process = fmt.Sprintf("process %d (%s)", p.PID, strings.TrimSpace(name))
	groups, err := p.Cgroups()
	if err != nil {
		return "", process
	}
	for _, g := range groups {
		if uid, _ := podcgroup.Locate(g.Path); uid != "" {
			return uid, process
		}
	}
	return "", process
}
