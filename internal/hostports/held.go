package hostports

import (
	"slices"
	"sync"
)

// Held reserves ports for their owners. Its zero value is ready. Methods may be called
// concurrently.
//
// Held binds a socket to each port that it reserves. Therefore it refuses a port that a process
// uses, no process can bind a reserved port later, and the kernel does not choose the port for
// outgoing connections of the node. The sockets receive no packets, since NAT rules send the port's
// packets to the pod. The reservations end with this process.
type Held struct {
	// Reserved are TCP ports of the agent itself. Take always refuses them. Reserved must not be
	// changed after the first call of a method.
	Reserved []uint16
	// Listen makes the sockets of TCP ports listen, for programs that open the ports that listen in a
	// network namespace on the machine as well, such as pasta. Only sockets for IPv4 listen, since
	// Linux has no NAT for connections to ::1, which would hang.
	Listen bool

	mu  sync.Mutex
	all map[Claim]held
}

// held is the owner and the socket of a reserved port.
type held struct {
	owner string
	socket
}

// Take reserves ports for an owner in the network namespace of the calling thread. If one of them
// cannot be reserved, Take reserves none and returns an error, which wraps ErrTaken or ErrLimit
// where these apply. Ports that the owner already has stay reserved.
func (h *Held) Take(owner string, claims ...Claim) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var missing []Claim
	for _, c := range claims {
		if c.Proto == TCP && slices.Contains(h.Reserved, c.Port) {
			return refuse(ErrTaken, "host port %s is one of the agent's own", c)
		}
		switch had, there := h.all[c]; {
		case there && had.owner != owner:
			return refuse(ErrTaken, "host port %s is taken by pod %s", c, had.owner)
		case !there:
			missing = append(missing, c)
		}
	}
	if err := room(len(h.all), len(missing)); err != nil {
		return err
	}
	taken := map[Claim]held{}
	for _, c := range missing {
		s, err := bind(c, h.Listen)
		if err != nil {
			if err = h.checkBindError(c, err); err == nil {
				continue
			}
			for _, t := range taken {
				t.close()
			}
			return err
		}
		taken[c] = held{owner, s}
	}
	if h.all == nil {
		h.all = map[Claim]held{}
	}
	for c, t := range taken {
		h.all[c] = t
	}
	return nil
}

// Give releases all ports of an owner.
func (h *Held) Give(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c, one := range h.all {
		if one.owner == owner {
			one.close()
			delete(h.all, c)
		}
	}
}

// Len returns the number of reserved ports.
func (h *Held) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// Close releases all ports.
func (h *Held) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c, one := range h.all {
		one.close()
		delete(h.all, c)
	}
}
