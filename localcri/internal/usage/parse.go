package usage

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// number parses a single number. "max" is math.MaxUint64, and so is the value that means no limit
// on v1 (PAGE_COUNTER_MAX of Linux: the largest long in whole pages).
func number(b []byte) (uint64, bool) {
	s := string(bytes.TrimSpace(b))
	if s == "max" || s == "-1" {
		return math.MaxUint64, true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// unlimited reports whether a memory limit means no limit.
func unlimited(n uint64) bool { return n >= math.MaxInt64-1<<16 }

// flat parses lines with a name and a number each.
func flat(b []byte) map[string]uint64 {
	out := map[string]uint64{}
	for line := range bytes.Lines(b) {
		name, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(string(value), 10, 64); err == nil {
			out[string(name)] = n
		}
	}
	return out
}

// device is the number of a block device, for example 8:0.
type device string

// operations has the bytes or operations of one device.
type operations struct {
	readBytes, writeBytes, reads, writes uint64
}

// ioStat parses io.stat of v2: "8:0 rbytes=1 wbytes=2 rios=3 wios=4 ...".
func ioStat(b []byte) map[device]operations {
	out := map[device]operations{}
	for line := range bytes.Lines(b) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 || !isDevice(fields[0]) {
			continue
		}
		var o operations
		for _, f := range fields[1:] {
			name, value, _ := strings.Cut(f, "=")
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				continue
			}
			switch name {
			case "rbytes":
				o.readBytes = n
			case "wbytes":
				o.writeBytes = n
			case "rios":
				o.reads = n
			case "wios":
				o.writes = n
			}
		}
		out[device(fields[0])] = o
	}
	return out
}

// blkio parses blkio.throttle.io_service_bytes_recursive of v1, or io_serviced_recursive if
// isBytes is false: "8:0 Read 1".
func blkio(b []byte, into map[device]operations, isBytes bool) {
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) != 3 || !isDevice(f[0]) {
			continue
		}
		n, err := strconv.ParseUint(f[2], 10, 64)
		if err != nil {
			continue
		}
		o := into[device(f[0])]
		switch {
		case f[1] == "Read" && isBytes:
			o.readBytes = n
		case f[1] == "Read":
			o.reads = n
		case f[1] == "Write" && isBytes:
			o.writeBytes = n
		case f[1] == "Write":
			o.writes = n
		}
		into[device(f[0])] = o
	}
}

func isDevice(s string) bool {
	major, minor, ok := strings.Cut(s, ":")
	return ok && major != "" && minor != "" && strings.Trim(major+minor, "0123456789") == ""
}

// iface has the counters of one network interface.
type iface struct {
	name                                    string
	rxBytes, rxPackets, rxErrors, rxDropped uint64
	txBytes, txPackets, txErrors, txDropped uint64
}

// maxInterfaces is the maximum number of interfaces reported for a pod.
const maxInterfaces = 256

// netDev parses /proc/net/dev (proc_pid_net(5)), and omits lo.
func netDev(b []byte) []iface {
	var out []iface
	for line := range bytes.Lines(b) {
		name, rest, ok := strings.Cut(string(line), ":")
		f := strings.Fields(rest)
		if name = strings.TrimSpace(name); !ok || name == "lo" || len(f) < 16 || len(out) == maxInterfaces {
			continue
		}
		n := make([]uint64, 16)
		bad := false
		for i := range n {
			v, err := strconv.ParseUint(f[i], 10, 64)
			n[i], bad = v, bad || err != nil
		}
		if !bad {
			out = append(out, iface{name, n[0], n[1], n[2], n[3], n[8], n[9], n[10], n[11]})
		}
	}
	return out
}

// pids parses a list such as cgroup.procs. Processes of other PID namespaces, shown as 0, are
// omitted.
func pids(b []byte) []int {
	var out []int
	for line := range bytes.Lines(b) {
		if pid, err := strconv.Atoi(string(bytes.TrimSpace(line))); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out
}
