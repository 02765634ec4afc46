package bridge

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// maxRemovals is how many interfaces are removed by one request: the kernel does
// nothing else with links of any namespace meanwhile.
const maxRemovals = 64

// removals are the interfaces that are to be removed. The kernel waits some 20 ms
// for all of its CPUs at each removal of a link and, of all links that go at once,
// only once: what comes while a removal is under way goes together with the next.
type removals struct {
	group uint32 // of interfaces, which nobody else uses

	mu      sync.Mutex
	waiting []removal
	busy    bool
}

type removal struct {
	name string
	done chan<- error
}

// newGroup chooses a group of interfaces. Those that people use have small numbers.
func newGroup() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint32(b[:])&0x3fffffff | 1<<30
}

// removeVeth removes a veth by its end on the node. One that is not there is no
// error, and what is no veth stays.
func (l *links) removeVeth(name string) error { return l.removeVeths(name) }

// removeVeths removes veths, and reports what each came to.
func (l *links) removeVeths(names ...string) error {
	done := make(chan error, len(names))
	r := &l.removals
	r.mu.Lock()
	for _, name := range names {
		r.waiting = append(r.waiting, removal{name, done})
	}
	begin := !r.busy && len(r.waiting) > 0
	r.busy = r.busy || begin
	r.mu.Unlock()
	if begin {
		go l.removeWaiting()
	}
	var errs []error
	for range names {
		errs = append(errs, <-done)
	}
	return errors.Join(errs...)
}

// removeWaiting removes until nobody waits.
func (l *links) removeWaiting() {
	r := &l.removals
	for {
		r.mu.Lock()
		all := r.waiting[:min(len(r.waiting), maxRemovals)]
		r.waiting = r.waiting[len(all):]
		r.busy = len(all) > 0
		r.mu.Unlock()
		if len(all) == 0 {
			return
		}
		names := make([]string, len(all))
		for i, one := range all {
			names[i] = one.name
		}
		var errs []error
		if err := call(func() error { errs = l.removeNow(names); return nil }); err != nil {
			errs = make([]error, len(all))
			for i := range errs {
				errs[i] = err
			}
		}
		for i, one := range all {
			one.done <- errs[i]
		}
	}
}

// removeNow removes veths at once, and returns what became of each.
func (l *links) removeNow(names []string) []error {
	errs := make([]error, len(names))
	found := make([]netlink.Link, len(names))
	marked := 0
	for i, name := range names {
		link, err := l.find(name)
		switch {
		case err != nil:
			errs[i] = err
		case link == nil:
		case link.Type() != "veth":
			errs[i] = fmt.Errorf("%s is a %s, want a veth", name, link.Type())
		default:
			found[i] = link
			if len(names) > 1 && l.h.LinkSetGroup(link, int(l.removals.group)) == nil {
				marked++
			}
		}
	}
	atPoint("marked")
	if marked > 1 {
		_ = l.removeGroup() // what stays is removed one by one
	}
	for i, link := range found {
		if link == nil {
			continue
		}
		if marked > 1 {
			if again, err := l.find(names[i]); err == nil && again == nil {
				continue
			}
		}
		if err := l.h.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
			errs[i] = err
			continue
		}
		if again, err := l.find(names[i]); err != nil {
			errs[i] = err
		} else if again != nil && again.Type() == "veth" {
			errs[i] = fmt.Errorf("%s is still there", names[i])
		}
	}
	return errs
}

// removeGroup removes the interfaces that were marked.
func (l *links) removeGroup() error {
	r := l.request(unix.RTM_DELLINK, unix.NLM_F_ACK)
	r.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	r.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(l.removals.group)))
	_, err := r.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
