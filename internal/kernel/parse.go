package kernel

import (
	"bytes"
	"errors"
	"strconv"
)

// parseProcess parses the content of /proc/PID/stat (proc_pid_stat(5)).
func parseProcess(b []byte) (Process, error) {
	i := bytes.LastIndexByte(b, ')') // the end of the name, which may itself contain ')'
	// proc_pid_stat(5) numbers fields from 1; the first field after the name has number 3.
	f := append(make([][]byte, 3), bytes.Fields(b[i+1:])...)
	if i < 0 || len(f) <= 22 || len(f[3]) != 1 {
		return Process{}, &FormatError{"stat", string(b), "22 fields, of which the second is a name in parentheses"}
	}
	p := Process{State: f[3][0]}
	var errs []error
	number := func(field int, bits int) int64 {
		n, err := strconv.ParseInt(string(f[field]), 10, bits)
		errs = append(errs, err)
		return n
	}
	p.Parent, p.Group = int(number(4, 32)), int(number(5, 32))
	start, err := strconv.ParseUint(string(f[22]), 10, 64)
	p.Start, errs = start, append(errs, err)
	if len(f) > 52 {
		p.Exit = int32(number(52, 32))
	}
	if errors.Join(errs...) != nil {
		return Process{}, &FormatError{"stat", string(b), "numbers in fields 4, 5, 22 and 52"}
	}
	return p, nil
}
