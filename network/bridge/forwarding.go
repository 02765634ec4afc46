package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/nodewright/nodewright/internal/safefile"
)

const (
	sysctlForward4 = "ipv4/ip_forward"
	sysctlForward6 = "ipv6/conf/all/forwarding"
	maxIfaces      = 1 << 14 // that are looked at
)

// forwarding is what is to be done about the node's forwarding.
type forwarding struct {
	set4, set6 bool // now
	ours       state
}

// planForwarding decides what is set from what is, and returns the state that is
// to be kept before: on whose account forwarding between other interfaces stays
// dropped. What was set in an earlier boot is not set any more.
func planForwarding(have4, have6 string, with6 bool, boot string, s state) forwarding {
	f := forwarding{ours: s}
	if f.ours.Forward4 != boot {
		f.ours.Forward4 = ""
	}
	if f.ours.Forward6 != boot {
		f.ours.Forward6, f.ours.AcceptRA = "", nil
	}
	if have4 == "0" {
		f.set4, f.ours.Forward4 = true, boot
	}
	if with6 && have6 == "0" {
		f.set6, f.ours.Forward6 = true, boot
	}
	return f
}

// forwardingNow reads the settings of the calling thread's network namespace.
func forwardingNow(with6 bool) (v4, v6 string, err error) {
	if v4, err = readSysctl(sysctlForward4); err != nil || !with6 {
		return v4, "", err
	}
	v6, err = readSysctl(sysctlForward6)
	return v4, v6, err
}

// raThatWouldEnd lists the interfaces that take router advertisements and would
// not any more, once the node forwards.
func raThatWouldEnd() ([]string, error) {
	entries, err := safefile.Entries("/proc/sys/net/ipv6/conf", maxIfaces)
	if err != nil && !errors.Is(err, safefile.ErrTooMany) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if v, err := readSysctl("ipv6/conf/" + e.Name() + "/accept_ra"); err == nil && v == "1" && len(names) < maxStateList {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// apply sets what was planned. The rules that keep other forwarding dropped are
// there already, and the state is on the disk.
func (f forwarding) apply() error {
	if f.set4 {
		if err := writeSysctl(sysctlForward4, "1"); err != nil {
			return fmt.Errorf("set net.ipv4.ip_forward: %w", err)
		}
	}
	if !f.set6 {
		return nil
	}
	for _, name := range f.ours.AcceptRA {
		if err := writeSysctl("ipv6/conf/"+name+"/accept_ra", "2"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set accept_ra of %s: %w", name, err)
		}
	}
	if err := writeSysctl(sysctlForward6, "1"); err != nil {
		return fmt.Errorf("set net.ipv6.conf.all.forwarding: %w", err)
	}
	return nil
}

// undoForwarding sets back what was set in this boot.
func undoForwarding(s state, boot string) error {
	var errs []error
	if s.Forward4 == boot && boot != "" {
		errs = append(errs, writeSysctl(sysctlForward4, "0"))
	}
	if s.Forward6 == boot && boot != "" {
		errs = append(errs, writeSysctl(sysctlForward6, "0"))
		for _, name := range s.AcceptRA {
			if v, err := readSysctl("ipv6/conf/" + name + "/accept_ra"); err == nil && v == "2" {
				errs = append(errs, writeSysctl("ipv6/conf/"+name+"/accept_ra", "1"))
			}
		}
	}
	for i, err := range errs {
		if errors.Is(err, os.ErrNotExist) {
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}
