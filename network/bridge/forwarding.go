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
	// sysctlForward4 and the names below are settings of all interfaces, below /proc/sys/net
	// (ip-sysctl.rst). Writing the first one also sets those of each interface.
	sysctlForward4 = "ipv4/ip_forward"
	sysctlForward6 = "ipv6/conf/all/forwarding"
	maxIfaces      = 1 << 14 // that are looked at
)

// forwarding is the planned change of the node's forwarding. Linux starts with 0
// (ip-sysctl.rst): a node that forwards nothing may have no firewall for forwarded
// packets, so that turning it on for pods must not allow traffic between its other
// interfaces.
type forwarding struct {
	set4, set6 bool // now
	ours       state
}

// planForwarding decides which settings to change. The result also has the state to
// store before the change: in which boot this plugin set them. If it set them in this
// boot, forwarding between other interfaces is dropped. Settings from an earlier boot
// do not exist any more. have4 and have6 are the current settings, boot is the ID of
// this boot.
func planForwarding(have4, have6 string, with6 bool, boot string, s state) forwarding {
	f := forwarding{ours: s}
	// Settings end with a boot: a 1 that is found now was set by another program.
	if f.ours.Forward4 != boot {
		f.ours.Forward4 = ""
	}
	if f.ours.Forward6 != boot {
		f.ours.Forward6, f.ours.AcceptRA = "", nil
	}
	// "1" is kept: the program that set it may need forwarding for other interfaces.
	if have4 == "0" {
		f.set4, f.ours.Forward4 = true, boot
	}
	if with6 && have6 == "0" {
		f.set6, f.ours.Forward6 = true, boot
	}
	return f
}

// forwardingNow reads the settings of the calling thread's network namespace. If with6 is false,
// v6 is "".
func forwardingNow(with6 bool) (v4, v6 string, err error) {
	if v4, err = readSysctl(sysctlForward4); err != nil || !with6 {
		return v4, "", err
	}
	v6, err = readSysctl(sysctlForward6)
	return v4, v6, err
}

// raThatWouldEnd lists the interfaces that accept router advertisements now, but would
// not once the node forwards. With accept_ra 1 the kernel accepts them only while it
// does not forward (ip-sysctl.rst), so a node that has its address from a router would
// lose the address. With accept_ra 2 the kernel always accepts them.
func raThatWouldEnd() ([]string, error) {
	entries, err := safefile.Entries("/proc/sys/net/ipv6/conf", maxIfaces)
	// A node with more interfaces than the limit keeps the settings of the others.
	if err != nil && !errors.Is(err, safefile.ErrTooMany) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		// The interface may have been removed since; then it needs no setting.
		if v, err := readSysctl("ipv6/conf/" + e.Name() + "/accept_ra"); err == nil && v == "1" && len(names) < maxStateList {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// apply writes the planned settings. It is called within the node's network namespace, after the
// rules that drop other forwarding exist and the state is on the disk. After an error, some of the
// settings may have been written; the next preparation continues.
func (f forwarding) apply() error {
	if f.set4 {
		if err := writeSysctl(sysctlForward4, "1"); err != nil {
			return fmt.Errorf("set net.ipv4.ip_forward: %w", err)
		}
	}
	if !f.set6 {
		return nil
	}
	// Set before forwarding, so that interfaces never refuse advertisements.
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

// undoForwarding resets the settings made in this boot. It is called within the
// node's network namespace.
func undoForwarding(s state, boot string) error {
	var errs []error
	if s.Forward4 == boot && boot != "" {
		errs = append(errs, writeSysctl(sysctlForward4, "0"))
	}
	if s.Forward6 == boot && boot != "" {
		errs = append(errs, writeSysctl(sysctlForward6, "0"))
		for _, name := range s.AcceptRA {
			// The setting is kept if another program has changed it since.
			if v, err := readSysctl("ipv6/conf/" + name + "/accept_ra"); err == nil && v == "2" {
				errs = append(errs, writeSysctl("ipv6/conf/"+name+"/accept_ra", "1"))
			}
		}
	}
	for i, err := range errs {
		// A missing interface, or missing IPv6, needs no reset.
		if errors.Is(err, os.ErrNotExist) {
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}
