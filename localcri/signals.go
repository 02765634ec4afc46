//go:build linux

package localcri

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The first and the last real-time signal in the C library's numbering (signal(7)). Names such as
// SIGRTMIN+3 are relative to it.
const (
	sigRTMin = 34
	sigRTMax = 64
)

// signalNumber parses a signal as images name it: "SIGTERM", "TERM", "15", "SIGRTMIN+3".
func signalNumber(name string) (unix.Signal, bool) {
	name = strings.ToUpper(strings.TrimSpace(name))
	if n, err := strconv.Atoi(name); err == nil {
		return unix.Signal(n), n > 0 && n <= sigRTMax
	}
	name = strings.TrimPrefix(name, "SIG")
	for _, rt := range []struct {
		name string
		from int
	}{{"RTMIN", sigRTMin}, {"RTMAX", sigRTMax}} {
		rest, ok := strings.CutPrefix(name, rt.name)
		if !ok {
			continue
		}
		offset := 0
		if rest != "" {
			n, err := strconv.Atoi(rest) // includes the sign
			if err != nil || rest[0] != '+' && rest[0] != '-' {
				return 0, false
			}
			offset = n
		}
		n := rt.from + offset
		return unix.Signal(n), n >= sigRTMin && n <= sigRTMax
	}
	switch name {
	case "CLD":
		name = "CHLD"
	case "IOT":
		name = "ABRT"
	case "POLL":
		name = "IO"
	}
	s := unix.SignalNum("SIG" + name)
	return s, s != 0
}

// stopSignal returns the signal that asks a container to stop: the signal in the CRI request or,
// if the request has none, the image's signal. If neither names a signal, the result is SIGTERM.
func stopSignal(asked runtimeapi.Signal, image string) unix.Signal {
	if asked != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		if s, ok := signalNumber(signalName(asked)); ok {
			return s
		}
	}
	if image != "" {
		if s, ok := signalNumber(image); ok {
			return s
		}
	}
	return unix.SIGTERM
}

// signalName returns the usual name of a CRI signal: SIGNAL_SIGRTMINPLUS1 is SIGRTMIN+1.
func signalName(s runtimeapi.Signal) string {
	return strings.NewReplacer("SIGNAL_", "", "PLUS", "+", "MINUS", "-").Replace(s.String())
}

// stopSignalLocked returns the CRI's name of the signal that stops the container. The caller
// holds pod.mu.
func (c *container) stopSignalLocked() runtimeapi.Signal {
	s := stopSignal(c.config.GetStopSignal(), c.record.StopSignal)
	if c.config.GetStopSignal() != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return c.config.GetStopSignal()
	}
	name := unix.SignalName(s)
	switch n := int(s); {
	case n == sigRTMin:
		name = "SIGRTMIN"
	case n == sigRTMax:
		name = "SIGRTMAX"
	case n > sigRTMin && n <= sigRTMin+15:
		name = "SIGRTMINPLUS" + strconv.Itoa(n-sigRTMin)
	case n > sigRTMin+15 && n < sigRTMax:
		name = "SIGRTMAXMINUS" + strconv.Itoa(sigRTMax-n)
	}
	return runtimeapi.Signal(runtimeapi.Signal_value["SIGNAL_"+name])
}
