package bridge

import (
	"fmt"
	"net/netip"
	"slices"

	"go.uber.org/zap"
)

// notes has sentences for people about problems that do not prevent attaching pods. Plugin.mu
// guards them. Each is empty if there is no problem.
type notes struct {
	subnet     string   // the configured one waits
	forwarding string   // the setting that was made
	conntrack  string   // the missing kernel feature
	guard      string   // the same
	conflicts  []string // routes over the subnet, settings
	dropping   []string // chains of other programs
}

// Advice returns sentences for a verbose status. Each names a setting that disturbs the pods'
// traffic, and how to change it. It returns nil if there is no such setting. The sentences are
// kept up to date while Run runs.
func (p *Plugin) Advice() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, s := range []string{p.notes.subnet, p.notes.forwarding, p.notes.conntrack, p.notes.guard} {
		if s != "" {
			all = append(all, s)
		}
	}
	// Problems that New found come first.
	return slices.Concat(all, p.notes.conflicts, p.notes.dropping)
}

// forwardingNote returns the sentence that says for which address families forwarding between
// other interfaces is dropped. It returns "" if there is no such family.
func forwardingNote(drop4, drop6 bool) string {
	const tail = " was turned on for pods, and forwarding between other interfaces stays dropped; to allow it, set it in sysctl.d and restart the machine"
	switch {
	case drop4 && drop6:
		return "net.ipv4.ip_forward and net.ipv6.conf.all.forwarding" + tail
	case drop4:
		return "net.ipv4.ip_forward" + tail
	case drop6:
		return "net.ipv6.conf.all.forwarding" + tail
	}
	return ""
}

// lookForConflicts searches for routes and addresses of other programs that overlap
// the pods' subnets, and for changed settings. It changes nothing. It blocks on the
// kernel. Run calls it at most once in lookPause.
func (p *Plugin) lookForConflicts() error {
	l := p.layout()
	all, err := p.links.taken(l.bridge, l.subnet, l.subnet6)
	if err != nil {
		return err
	}
	var found []string
	for _, t := range all {
		for _, subnet := range []netip.Prefix{l.subnet, l.subnet6} {
			// The number of sentences is limited: many routes over the subnet are one problem.
			if !subnet.IsValid() || len(found) == maxForeign {
				continue
			}
			if _, ok := overlap(subnet, []taken{t}); ok {
				found = append(found, fmt.Sprintf("the subnet %s of pods overlaps %s: packets for one may go to the other", subnet, t.by))
			}
		}
	}
	off, err := p.forwardingOff(l)
	if err != nil {
		return err
	}
	found = append(found, off...)
	// Sorted and without duplicates, so that note can find new ones.
	slices.Sort(found)
	p.note(&p.notes.conflicts, slices.Compact(found), "pods may not reach others")
	return nil
}

// forwardingOff returns the forwarding settings that were turned off since they were
// needed. The plugin does not turn them on again: the program that turned them off,
// such as a hardening script, might turn them off each time.
func (p *Plugin) forwardingOff(l layout) (found []string, err error) {
	// Before the first pod, the settings are not needed.
	if !p.isReady() {
		return nil, nil
	}
	err = withinNetns(p.ns, func() error {
		v4, v6, err := forwardingNow(l.has6())
		if v4 == "0" {
			found = append(found, "net.ipv4.ip_forward is 0: pods reach nobody but each other and the node, and host ports answer to the node alone")
		}
		if v6 == "0" {
			found = append(found, "net.ipv6.conf.all.forwarding is 0: pods reach nobody but each other and the node by IPv6")
		}
		return err
	})
	return found, err
}

// lookForDropping searches for chains of other programs that drop pods' packets. It
// only reads those tables.
func (p *Plugin) lookForDropping() error {
	l := p.layout()
	chains, err := p.table.droppingChains(l.bridge, l.has6())
	if err != nil {
		return err
	}
	var found []string
	for _, d := range chains {
		found = append(found, d.advice(l.bridge))
	}
	slices.Sort(found)
	p.note(&p.notes.dropping, found, "packets of pods are dropped by others")
	return nil
}

// note replaces a list of sentences by found, and logs those that are new. list points
// to one of p.notes.
func (p *Plugin) note(list *[]string, found []string, message string) {
	p.mu.Lock()
	old := *list
	*list = found
	p.mu.Unlock()
	for _, s := range found {
		if !slices.Contains(old, s) {
			p.log.Warn(message, zap.String("advice", s))
		}
	}
}
