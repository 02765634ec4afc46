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

// maxRemovals limits the interfaces that one request removes: meanwhile the kernel does nothing
// else with links of any namespace.
const maxRemovals = 64

// removals are the interfaces to be removed. For each request, the kernel waits some 20 ms for
// all of its CPUs, even if the request removes many links. So the removals that are asked for
// while a request runs are combined into the next request.
type removals struct {
	group uint32 // of interfaces, for this plugin alone

	// mu guards waiting and busy. busy means that a goroutine runs removeWaiting.
	mu      sync.Mutex
	waiting []removal
	busy    bool
}

// removal is one interface, with the channel that gets its result. The channel has a buffer of
// one.
type removal struct {
	name string
	done chan<- error
}

// newGroup returns a random interface group of 30 bits. Administrators use small
// numbers, and two agents practically never get the same one.
func newGroup() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint32(b[:])&0x3fffffff | 1<<30
}

// removeVeth removes a veth by its end on the node; the other end is removed with it. It is not
// an error if a veth does not exist. An interface of another type is not removed. It blocks until
// the interface is gone.
func (l *links) removeVeth(name string) error { return l.removeVeths(name) }

// removeVeths removes veths and joins the errors. It may be called concurrently.
func (l *links) removeVeths(names ...string) error {
	// Each result has a place in the channel, so that removeWaiting never waits for a caller.
	done := make(chan error, len(names))
	r := &l.removals
	r.mu.Lock()
	for _, name := range names {
		r.waiting = append(r.waiting, removal{name, done})
	}
	// The first caller starts the goroutine.
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

// removeWaiting removes interfaces until none is waiting. Requests that come during one
// round are handled in the next; removing 100 pods takes a few rounds.
func (l *links) removeWaiting() {
	r := &l.removals
	for {
		r.mu.Lock()
		all := r.waiting[:min(len(r.waiting), maxRemovals)]
		r.waiting = r.waiting[len(all):]
		// Set while the lock is held under which the list was found empty: the next caller starts a
		// new goroutine.
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
		// After a panic the callers must still get a result; otherwise they would wait
		// without end.
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

// removeNow removes veths at once. For each veth it returns nil, or an error if the veth may
// still exist. It puts the veths into the group, removes the group by one request, and then
// checks each.
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
		// Another program has given the name to another type of interface.
		case link.Type() != "veth":
			errs[i] = fmt.Errorf("interface %s has the type %s; want veth", name, link.Type())
		default:
			found[i] = link
			// An interface that cannot be added to the group is removed below, by a
			// separate call.
			if len(names) > 1 && l.h.LinkSetGroup(link, int(l.removals.group)) == nil {
				marked++
			}
		}
	}
	atPoint("marked")
	if marked > 1 {
		_ = l.removeGroup() // remaining ones are removed one by one
	}
	for i, link := range found {
		if link == nil {
			continue
		}
		// Most were removed with the group.
		if marked > 1 {
			if again, err := l.find(names[i]); err == nil && again == nil {
				continue
			}
		}
		// ENODEV means that the interface is gone, for example because the pod's namespace has
		// ended.
		if err := l.h.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
			errs[i] = err
			continue
		}
		// Checked again: an address must not be reused while its interface exists.
		if again, err := l.find(names[i]); err != nil {
			errs[i] = err
		} else if again != nil && again.Type() == "veth" {
			errs[i] = fmt.Errorf("interface %s still exists after its removal", names[i])
		}
	}
	return errs
}

// removeGroup removes the interfaces that were marked. RTM_DELLINK with IFLA_GROUP and
// no index removes every link of the group in the namespace.
func (l *links) removeGroup() error {
	r := l.request(unix.RTM_DELLINK, unix.NLM_F_ACK)
	r.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	r.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(l.removals.group)))
	_, err := r.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
