package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/network"
)

// Host ports are taken as a process takes a port: with a socket that is bound to it. So a
// port that a process has is refused, no process can take a port of a pod later, and the
// node does not use the port for connections of its own. The sockets receive nothing: the
// table translates what would come to them. They end with this process, and Recovered
// makes them again.

// heldShare is the part of the limit of open files that host ports may have.
const heldShare = 4

// hold takes the claims of a pod, all or none. p.ns is entered. The gate is held.
func (p *Plugin) hold(one *pod) error {
	var missing []claim
	for _, f := range one.forwards {
		if _, there := p.held[f.claim]; !there {
			missing = append(missing, f.claim)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if most := limit.Cur / heldShare; uint64(len(p.held)+len(missing)) > most {
		return network.Errorf(network.ResourceExhausted, "%d host ports are in use, and %d more are asked for; the limit of open files allows %d", len(p.held), len(missing), most)
	}
	taken := map[claim]int{}
	err := withinNetns(p.ns, func() error {
		for _, c := range missing {
			fd, err := bind(c)
			if err == nil {
				taken[c] = fd
				continue
			}
			if err := p.excuse(c, err); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		for _, fd := range taken {
			_ = unix.Close(fd)
		}
		return err
	}
	for c, fd := range taken {
		p.held[c] = fd
	}
	return nil
}

// release gives the claims of a pod back.
func (p *Plugin) release(one *pod) {
	for _, f := range one.forwards {
		if fd, there := p.held[f.claim]; there {
			_ = unix.Close(fd)
			delete(p.held, f.claim)
		}
	}
}

// excuse returns nil if a port that cannot be bound can be served nevertheless: without
// such sockets in this kernel, no process has the port; and a connection of the node may
// have the port as its source, which keeps others from listening there as well.
func (p *Plugin) excuse(c claim, err error) error {
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT):
		return nil
	case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE):
		return network.Errorf(network.ResourceExhausted, "host port %s: %w", c, err)
	case !errors.Is(err, unix.EADDRINUSE):
		return network.Errorf(network.Unknown, "host port %s: %w", c, err)
	}
	found, listErr := listeners(p.ns, []forward{{claim: c}})
	if listErr != nil {
		return network.Errorf(network.Unavailable, "host port %s is in use: %w", c, listErr)
	}
	if len(found) == 0 {
		return nil
	}
	return network.Errorf(network.AlreadyExists, "host port %s: %s listens on %s", c, process(found[0].inode), netip.AddrPortFrom(found[0].addr, c.port))
}

// bind returns a socket in the network namespace of the calling thread that has a port.
func bind(c claim) (fd int, err error) {
	domain, level, freebind := unix.AF_INET, unix.IPPROTO_IP, unix.IP_FREEBIND
	var at unix.Sockaddr
	if c.v6 {
		domain, level, freebind = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
		a := &unix.SockaddrInet6{Port: int(c.port)}
		if c.addr.IsValid() {
			a.Addr = c.addr.As16()
		}
		at = a
	} else {
		a := &unix.SockaddrInet4{Port: int(c.port)}
		if c.addr.IsValid() {
			a.Addr = c.addr.As4()
		}
		at = a
	}
	kind := unix.SOCK_STREAM
	if c.proto == unix.IPPROTO_UDP {
		kind = unix.SOCK_DGRAM
	}
	if fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC, int(c.proto)); err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	// The address may come to the node later.
	options := [][3]int{{level, freebind, 1}}
	if c.v6 {
		options = append(options, [3]int{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1})
	}
	if c.proto == unix.IPPROTO_TCP {
		// Or connections that a former listener closed would keep the port for a minute.
		options = append(options, [3]int{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1})
	} else {
		options = append(options, [3]int{unix.SOL_SOCKET, unix.SO_RCVBUF, 1})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
			return -1, fmt.Errorf("set option %d: %w", o[1], err)
		}
	}
	if err := unix.Bind(fd, at); err != nil {
		return -1, err
	}
	// With the option, others could listen on the port.
	if c.proto == unix.IPPROTO_TCP {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0)
	}
	return fd, err
}

// maxProcesses bounds the search for a socket's process.
const maxProcesses = 1 << 16

// process names the process that has a socket, for messages.
func process(inode uint32) string {
	const unknown = "a process of the node"
	want := "socket:[" + strconv.FormatUint(uint64(inode), 10) + "]"
	all, err := safefile.Entries("/proc", maxProcesses)
	if err != nil && !errors.Is(err, safefile.ErrTooMany) {
		return unknown
	}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", e.Name(), "fd")
		files, _ := safefile.Entries(dir, maxProcesses)
		for _, f := range files {
			b := make([]byte, len(want)+1)
			n, err := unix.Readlink(filepath.Join(dir, f.Name()), b)
			if err != nil || string(b[:n]) != want {
				continue
			}
			if pid == os.Getpid() {
				return fmt.Sprintf("this agent (process %d)", pid)
			}
			name, _ := safefile.ReadFile(filepath.Join("/proc", e.Name(), "comm"), maxSysctl)
			return fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(name)))
		}
	}
	return unknown
}
