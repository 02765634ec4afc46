package ocispec

import (
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// defaultCapabilities are the default capabilities of common container runtimes.
var defaultCapabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE",
	"CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

func (c *compiler) capabilities() error {
	known := c.in.Machine.Capabilities
	if c.in.privileged() {
		all := slices.Sorted(slices.Values(known))
		c.spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all}
		return nil
	}
	asked := c.in.security().GetCapabilities()
	set := map[string]bool{}
	for _, name := range defaultCapabilities {
		set[name] = slices.Contains(known, name)
	}
	// ALL comes first, so that {add: [ALL], drop: [KILL]} and the reverse have the intended
	// effect.
	for _, l := range []struct {
		field string
		names []string
		on    bool
	}{{"add_capabilities", asked.GetAddCapabilities(), true}, {"drop_capabilities", asked.GetDropCapabilities(), false}} {
		if slices.ContainsFunc(l.names, isAll) {
			for _, name := range known {
				set[name] = l.on
			}
		}
	}
	one := func(field string, names []string, on bool) error {
		for _, n := range names {
			if isAll(n) {
				continue
			}
			name := capability(n)
			if !on { // a capability that the kernel does not have is dropped
				delete(set, name)
				continue
			}
			if !slices.Contains(known, name) {
				return invalid("linux.security_context.capabilities."+field, n, "is no capability of this kernel")
			}
			set[name] = true
		}
		return nil
	}
	if err := one("add_capabilities", asked.GetAddCapabilities(), true); err != nil {
		return err
	}
	if err := one("drop_capabilities", asked.GetDropCapabilities(), false); err != nil {
		return err
	}
	ambient := map[string]bool{}
	for _, n := range asked.GetAddAmbientCapabilities() {
		names := []string{capability(n)}
		if isAll(n) {
			names = known
		}
		for _, name := range names {
			if !slices.Contains(known, name) {
				return invalid("linux.security_context.capabilities.add_ambient_capabilities", n, "is no capability of this kernel")
			}
			set[name], ambient[name] = true, true
		}
	}
	have := on(set)
	c.spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: have, Effective: have, Permitted: have}
	if len(ambient) > 0 { // the kernel requires ambient capabilities to be inheritable (capabilities(7))
		c.spec.Process.Capabilities.Ambient, c.spec.Process.Capabilities.Inheritable = on(ambient), on(ambient)
	}
	return nil
}

func isAll(name string) bool { return strings.EqualFold(name, "ALL") }

// capability returns the kernel's name of a capability, such as CAP_CHOWN. name may lack the
// prefix CAP_.
func capability(name string) string {
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "CAP_") {
		name = "CAP_" + name
	}
	return name
}

func on(set map[string]bool) []string {
	var out []string
	for name, is := range set {
		if is {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
