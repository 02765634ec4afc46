package stats

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// The formats of the kernel's files. Newer kernels may add lines and fields: they
// are skipped, and no error.

// unlimited is the least limit that counts as none: 2^62, as in the kubelet.
// cgroup v1 has no word for it and shows the largest multiple of a page.
const unlimited = 1 << 62

// number parses a file of one number. "max" of cgroup v2, no limit, becomes the
// largest uint64, so that comparisons work.
func number(raw []byte) (uint64, error) {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "max" {
		return 1<<64 - 1, nil
	}
	return strconv.ParseUint(string(raw), 10, 64)
}

// keyed parses a file of lines "name number" into the wanted numbers; names that
// are missing, or have no number, stay nil. A file is read once for all its names.
// Later lines of the same name win.
func keyed(raw []byte, want map[string]**uint64) {
	for line := range bytes.Lines(raw) {
		name, value, ok := bytes.Cut(line, []byte{' '})
		if !ok {
			continue
		}
		if p := want[string(bytes.TrimSuffix(name, []byte{':'}))]; p != nil {
			value, _, _ = bytes.Cut(bytes.TrimSpace(value), []byte{' '}) // the unit, in /proc/meminfo
			if n, err := strconv.ParseUint(string(value), 10, 64); err == nil {
				*p = &n
			}
		}
	}
}

// parsePressure reads a file of pressure stall information: cpu.pressure and
// others of cgroup v2, or one of /proc/pressure
// (Documentation/accounting/psi.rst). Total is in microseconds, as the kernel
// and the kubelet have it. The line "full" is missing for the processor before
// Linux 5.13, and zero then.
func parsePressure(raw []byte) (*statsapi.PSIStats, error) {
	out := &statsapi.PSIStats{}
	// Each file has this line: a file without it is of another kind.
	some := false
	for line := range bytes.Lines(raw) {
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var data *statsapi.PSIData
		switch string(fields[0]) {
		case "some":
			data, some = &out.Some, true
		case "full":
			data = &out.Full
		default:
			continue // a kind that is not known yet
		}
		if err := pressureLine(fields[1:], data); err != nil {
			return nil, err
		}
	}
	if !some {
		return nil, errors.New(`pressure: no line "some"`)
	}
	return out, nil
}

// pressureLine reads "avg10=0.00 avg60=0.00 avg300=0.00 total=0". Averages are in
// percent.
func pressureLine(fields [][]byte, data *statsapi.PSIData) error {
	averages := map[string]*float64{"avg10": &data.Avg10, "avg60": &data.Avg60, "avg300": &data.Avg300}
	for _, f := range fields {
		name, value, _ := bytes.Cut(f, []byte{'='})
		if string(name) == "total" {
			n, err := strconv.ParseUint(string(value), 10, 64)
			if err != nil {
				return fmt.Errorf("pressure: total: %w", err)
			}
			data.Total = n
		} else if p := averages[string(name)]; p != nil {
			v, err := strconv.ParseFloat(string(value), 64)
			// NaN fails this comparison too: it could not be encoded as JSON.
			if err != nil || !(v >= 0 && v <= 1e9) {
				return fmt.Errorf("pressure: %s is %q; want a percentage", name, value)
			}
			*p = v
		}
	}
	return nil
}
