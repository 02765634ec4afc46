package bridge

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
)

func (l *lab) link(p *Plugin, link netlink.Link) {
	l.t.Helper()
	if err := p.links.h.LinkAdd(link); err != nil {
		l.t.Fatal(err)
	}
}

func named(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

// Interfaces that are removed at once go together, and each caller hears of his
// own. What is no veth stays, and so does what nobody named.
func TestInterfacesAreRemovedTogether(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	var names []string
	for i := range maxRemovals + 5 {
		names = append(names, fmt.Sprint("nwv", i))
		l.link(p, &netlink.Veth{LinkAttrs: named(names[i]), PeerName: fmt.Sprint("peer", i)})
	}
	l.link(p, &netlink.Veth{LinkAttrs: named("bystander"), PeerName: "other"})
	l.link(p, &netlink.Bridge{LinkAttrs: named("other-kind")})
	names = append(names, "other-kind", "none")
	var wg sync.WaitGroup
	var mu sync.Mutex
	wrong := map[string]error{}
	for _, name := range names {
		wg.Go(func() {
			if err := p.links.removeVeth(name); err != nil {
				mu.Lock()
				defer mu.Unlock()
				wrong[name] = err
			}
		})
	}
	wg.Wait()
	if err := wrong["other-kind"]; len(wrong) != 1 || err == nil || !strings.Contains(err.Error(), "want veth") {
		t.Errorf("errors %v; want one of the other kind", wrong)
	}
	all, err := p.links.h.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, link := range all {
		left[link.Attrs().Name] = true
		if link.Attrs().Group == p.links.removals.group {
			t.Errorf("%s is marked", link.Attrs().Name)
		}
	}
	for _, name := range []string{"bystander", "other", "other-kind", "up0"} {
		if !left[name] {
			t.Errorf("%s is gone", name)
		}
		delete(left, name)
	}
	for name := range left {
		if strings.HasPrefix(name, "nwv") || strings.HasPrefix(name, "peer") {
			t.Errorf("%s is left", name)
		}
	}
	if err := errors.Join(p.links.removeVeths(), p.links.removeVeths(names[:3]...)); err != nil {
		t.Errorf("remove what is gone: %v", err)
	}
}

// An interface that cannot be removed, in the group that the marked ones are in,
// has the kernel refuse the request: they go one by one.
func TestInterfacesAreRemovedOneByOneIfTheyHaveTo(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	l.link(p, &netlink.Veth{LinkAttrs: named("nwa"), PeerName: "peera"})
	l.link(p, &netlink.Veth{LinkAttrs: named("nwb"), PeerName: "peerb"})
	lo, err := p.links.find("lo")
	if err == nil {
		err = p.links.h.LinkSetGroup(lo, int(p.links.removals.group))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := p.links.removeGroup(); err == nil {
		t.Fatal("the loopback interface was removed; the test shows nothing")
	}
	if err := p.links.removeVeths("nwa", "nwb"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"nwa", "nwb"} {
		if link, err := p.links.find(name); err != nil || link != nil {
			t.Errorf("%s: %v, %v", name, link, err)
		}
	}
}
