package bridge

import (
	"errors"
	"net/netip"
)

// errFull means that every address of the subnet is taken.
var errFull = errors.New("no free address")

// addresses allocates the addresses of a subnet. It allocates the address that has been free for
// the longest time. The search begins after the last address that an earlier process allocated.
// Addresses that were never allocated in this process come before those that were freed.
// Plugin.mu guards it.
type addresses struct {
	subnet netip.Prefix
	// used also has addresses outside of the subnet, of pods that an agent with another
	// configuration attached.
	used   map[netip.Addr]bool
	freed  []netip.Addr        // in the order of their ends
	queued map[netip.Addr]bool // addresses in freed
	next   uint32              // offset in the subnet that is tried next
	// left is the number of offsets that were not tried yet. It never increases; when
	// it is 0, freed has every free address.
	left uint32 // number of offsets that were not looked at yet
}

// newAddresses returns the addresses of subnet, all free.
func newAddresses(subnet netip.Prefix) *addresses {
	return &addresses{
		subnet: subnet, used: map[netip.Addr]bool{}, queued: map[netip.Addr]bool{},
		next: 2, left: 1<<(32-subnet.Bits()) - 3, // without the network, the gateway and the broadcast address
	}
}

// startAfter makes the search begin after addr. An address of another subnet changes nothing.
func (a *addresses) startAfter(addr netip.Addr) {
	if a.subnet.Contains(addr) {
		a.next = a.following(toUint(addr) - toUint(a.subnet.Addr()))
	}
}

// following returns the offset after offset. It wraps around and skips the reserved offsets: 0 is
// the network, 1 the gateway, and the last one the broadcast address.
func (a *addresses) following(offset uint32) uint32 {
	last := uint32(1)<<(32-a.subnet.Bits()) - 2
	if offset+1 > last || offset < 1 {
		return 2
	}
	return offset + 1
}

// take allocates addr, and reports whether it was free. It is for pods of an earlier process, whose
// addresses may be outside of the subnet.
func (a *addresses) take(addr netip.Addr) bool {
	if a.used[addr] {
		return false
	}
	a.used[addr] = true
	return true
}

// give allocates the address that has been free for the longest time, or returns errFull if no
// address is free. A freed address is used again as late as possible: peers may still have
// connections to it, and name servers may still answer with it.
func (a *addresses) give() (netip.Addr, error) {
	base := toUint(a.subnet.Addr())
	for a.left > 0 {
		addr := fromUint(base + a.next)
		a.next = a.following(a.next)
		a.left--
		// Addresses that were freed meanwhile are allocated in the order of freed.
		if !a.queued[addr] && a.take(addr) {
			return addr, nil
		}
	}
	for len(a.freed) > 0 {
		addr := a.freed[0]
		a.freed = a.freed[1:]
		delete(a.queued, addr)
		// A pod of an earlier process may have the address since it was queued.
		if a.take(addr) {
			return addr, nil
		}
	}
	return netip.Addr{}, errFull
}

// free frees an address. An address that is not allocated is ignored.
func (a *addresses) free(addr netip.Addr) {
	if !a.used[addr] {
		return
	}
	delete(a.used, addr)
	// An address of another subnet is not queued.
	if a.givable(addr) && !a.queued[addr] {
		a.freed = append(a.freed, addr)
		a.queued[addr] = true
	}
}

// givable reports whether the address may be given to a pod: it is in the subnet and not
// reserved. It is also called for the addresses of saved plans.
func (a *addresses) givable(addr netip.Addr) bool {
	return a.subnet.Contains(addr) && addr != a.subnet.Addr() && addr != gateway(a.subnet) && addr != broadcast(a.subnet)
}

// inUse returns the number of allocated addresses, including those of pods in other
// subnets.
func (a *addresses) inUse() int { return len(a.used) }
