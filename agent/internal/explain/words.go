package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// maxWords limits a citation of a log or a message, in bytes.
const maxWords = 300

// oneLine returns a text as one line without control characters.
func oneLine(s string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))), " ")
}

// shortened returns the last line of a text, cut to maxWords.
func shortened(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		s = s[i+1:]
	}
	if s = oneLine(s); len(s) > maxWords {
		s = strings.ToValidUTF8(s[:maxWords], "") + "..."
	}
	return s
}

// spell returns a duration in a readable form.
func spell(d time.Duration) string {
	if d < time.Second {
		return "less than 1s"
	}
	return duration.HumanDuration(d)
}

// share describes a part of all bytes, such as "12 of 40 MiB".
func share(part, all int64) string {
	unit, name := 1.0, "B"
	for _, next := range []string{"KiB", "MiB", "GiB"} {
		if float64(all)/unit < 1024 {
			break
		}
		unit, name = unit*1024, next
	}
	format := "%.0f of %.0f %s"
	if unit > 1 && float64(all)/unit < 10 {
		format = "%.1f of %.1f %s"
	}
	return fmt.Sprintf(format, float64(part)/unit, float64(all)/unit, name)
}

// times says how often something happened, and since when.
func times(n int32, since, now time.Time) string {
	if n == 1 {
		return "once, at " + clock(since)
	}
	return fmt.Sprintf("%d times in %s, since %s", n, spell(now.Sub(since)), clock(since))
}

// signal returns the name of the signal that ended a container, from its exit code.
func signal(t *v1.ContainerStateTerminated) string {
	n := t.Signal
	if n == 0 && t.ExitCode > 128 && t.ExitCode < 128+65 {
		n = t.ExitCode - 128
	}
	switch s := syscall.Signal(n); s {
	case 0:
		return ""
	case syscall.SIGKILL:
		return " (SIGKILL: it was killed)"
	case syscall.SIGTERM:
		return " (SIGTERM: it was told to end)"
	case syscall.SIGSEGV:
		return " (SIGSEGV: it used memory that it does not have)"
	case syscall.SIGABRT:
		return " (SIGABRT: it gave up)"
	default:
		return fmt.Sprintf(" (signal %d: %v)", n, s)
	}
}

var (
	// repeated matches the prefixes that runtimes and pulls put before the actual error.
	repeated  = regexp.MustCompile(`(runc create failed: |unable to start container process: |error during container init: |failed to start container [^ ]+: |RegistryUnavailable: |SignatureValidationFailed: |ErrImagePull: |dial tcp: )`)
	longID    = regexp.MustCompile(`\b([0-9a-f]{12})[0-9a-f]{52}\b`)
	number    = regexp.MustCompile(`\b\d{2,5}\b`)
	rpcPrefix = regexp.MustCompile(`rpc error: code = \w+ desc = `)
	numbered  = regexp.MustCompile(`:(\d{1,5})\b`)
	getPrefix = regexp.MustCompile(`^Get "([^"]+)": `)
)

// shown returns an error without gRPC codes and internal details, with short IDs.
func shown(s string) string {
	return longID.ReplaceAllString(repeated.ReplaceAllString(rpcPrefix.ReplaceAllString(s, ""), ""), "$1")
}

// httpFailure splits the error of an HTTP request into the URL and the cause.
func httpFailure(s string) (url, rest string, ok bool) {
	m := getPrefix.FindStringSubmatch(s)
	if m == nil {
		return "", "", false
	}
	rest = strings.TrimPrefix(s, m[0])
	// The URL already has the address.
	if i := strings.LastIndex(rest, ": connect: "); strings.HasPrefix(rest, "dial ") && i >= 0 {
		rest = rest[i+len(": connect: "):]
	}
	return m[1], shortened(rest), true
}

// portsOf lists the ports that may be meant when a container reports a taken port. Ports in the
// container's last log line (words) come first.
func portsOf(c *v1.Container, words string) []int32 {
	var out []int32
	for _, m := range numbered.FindAllStringSubmatch(words, -1) {
		if n, err := strconv.ParseUint(m[1], 10, 16); err == nil && n > 0 {
			out = append(out, int32(n))
		}
	}
	for _, p := range c.Ports {
		out = append(out, p.ContainerPort)
	}
	// The port of a program is often one of its arguments.
	for _, arg := range slices.Concat(c.Command, c.Args) {
		for _, m := range number.FindAllString(arg, -1) {
			if n, err := strconv.ParseUint(m, 10, 16); err == nil && n > 0 {
				out = append(out, int32(n))
			}
		}
	}
	return out
}
