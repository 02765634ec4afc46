package kernel

import (
	"strconv"
	"strings"
)

// Interface has the counters of a network interface since its creation.
type Interface struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// ParseInterfaces parses /proc/PID/net/dev (proc_pid_net(5)). It leaves out the loopback interface,
// and skips lines of another form, such as the heading.
func ParseInterfaces(b []byte) (out []Interface) {
	for line := range strings.Lines(string(b)) {
		name, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if name = strings.TrimSpace(name); !ok || name == "lo" || len(f) < 12 {
			continue
		}
		var n [12]uint64
		for i := range n {
			var err error
			if n[i], err = strconv.ParseUint(f[i], 10, 64); err != nil {
				ok = false
			}
		}
		if ok {
			out = append(out, Interface{name, n[0], n[1], n[2], n[3], n[8], n[9], n[10], n[11]})
		}
	}
	return out
}
