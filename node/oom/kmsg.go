package oom

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// kmsgRecord is one record of the kernel's log.
type kmsgRecord struct {
	// Priority is facility * 8 + level, as in syslog (RFC 5424). Messages of the kernel
	// itself have facility 0.
	Priority int
	// Seq is the record's number since boot.
	Seq uint64
	// Since is the time from boot, by the kernel's own clock, which does not
	// run while the machine sleeps.
	Since time.Duration
	// Message is the text, unescaped, without the dictionary below it.
	Message string
}

// FromKernel reports whether the kernel wrote the record. Programs can write any
// other record.
func (r *kmsgRecord) FromKernel() bool { return r.Priority>>3 == 0 }

// parseRecord parses one record in the format of /dev/kmsg
// (Documentation/ABI/testing/dev-kmsg):
// "priority,number,microseconds,flags[,...];text", then the lines of a dictionary. A
// byte that is not printable is written as \xNN.
func parseRecord(b []byte) (kmsgRecord, error) {
	head, text, ok := bytes.Cut(b, []byte{';'})
	if !ok {
		return kmsgRecord{}, errors.New("kernel log record: no ';' after its prefix")
	}
	fields := strings.Split(string(head), ",")
	if len(fields) < 3 {
		return kmsgRecord{}, fmt.Errorf("kernel log record: prefix %q has %d fields; want at least 3", head, len(fields))
	}
	prio, err := strconv.ParseUint(fields[0], 10, 31)
	if err != nil {
		return kmsgRecord{}, fmt.Errorf("kernel log record: priority: %w", err)
	}
	seq, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return kmsgRecord{}, fmt.Errorf("kernel log record: number: %w", err)
	}
	const most = uint64(1<<63-1) / uint64(time.Microsecond)
	usec, err := strconv.ParseUint(fields[2], 10, 64)
	if err != nil || usec > most {
		return kmsgRecord{}, fmt.Errorf("kernel log record: time %q; want microseconds since boot", fields[2])
	}
	text, _, _ = bytes.Cut(text, []byte{'\n'})
	return kmsgRecord{
		Priority: int(prio), Seq: seq,
		Since:   time.Duration(usec) * time.Microsecond,
		Message: unescape(text),
	}, nil
}

// unescape replaces \xNN by the byte; anything else is kept.
func unescape(b []byte) string {
	if !bytes.Contains(b, []byte(`\x`)) {
		return string(b)
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+3 < len(b) && b[i+1] == 'x' {
			if n, err := strconv.ParseUint(string(b[i+2:i+4]), 16, 8); err == nil {
				out = append(out, byte(n))
				i += 3
				continue
			}
		}
		out = append(out, b[i])
	}
	return string(out)
}
