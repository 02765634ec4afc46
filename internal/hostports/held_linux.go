package hostports

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/podcgroup"
	"github.com/nodewright/nodewright/internal/safefile"
)

// share limits the sockets for host ports to 1/share of the limit of open files.
const share = 4

// room returns an ErrLimit if wanted more sockets would exceed the limit. open is the number of
// open sockets.
func room(open, wanted int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if most := limit.Cur / share; uint64(open+wanted) > most {
		return refuse(ErrLimit, "%d host ports are in use and %d more are requested; the limit of open files allows %d", open, wanted, most)
	}
	return nil
}

// socket is a socket bound to a port.
type socket struct {
	fd    int
	inode uint32
}

func (s socket) close() { _ = unix.Close(s.fd) }

// checkBindError returns nil if pods can use a host port although bind failed with err:
//
//   - The kernel has no sockets of the protocol, so no process has the port.
//   - Only an outgoing connection of the node uses the port.
//   - Only sockets of h use the port, with another address.
//
// Otherwise it returns the error for Take.
func (h *Held) checkBindError(c Claim, err error) error {
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT):
		return nil
	case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE):
		return refuse(ErrLimit, "host port %s: %v", c, err)
	case !errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("host port %s: %w", c, err)
	}
	own := map[uint32]bool{}
	for _, one := range h.all {
		own[one.inode] = true
	}
	l, found, listErr := listenerOf(c, own)
	switch {
	case listErr != nil:
		return fmt.Errorf("host port %s is in use: %w", c, listErr)
	case !found:
		return nil
	}
	return refuse(ErrTaken, "host port %s: %s listens on %s", c, process(l.inode), netip.AddrPortFrom(l.addr, c.Port))
}

// bind returns a socket bound to a port, which listens if [Held].Listen says so, in the network namespace of the calling thread.
func bind(c Claim, listen bool) (s socket, err error) {
	domain, level, freebind := unix.AF_INET, unix.IPPROTO_IP, unix.IP_FREEBIND
	var at unix.Sockaddr
	if c.V6 {
		domain, level, freebind = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
		a := &unix.SockaddrInet6{Port: int(c.Port)}
		if c.Addr.IsValid() {
			a.Addr = c.Addr.As16()
		}
		at = a
	} else {
		a := &unix.SockaddrInet4{Port: int(c.Port)}
		if c.Addr.IsValid() {
			a.Addr = c.Addr.As4()
		}
		at = a
	}
	kind := unix.SOCK_STREAM
	if c.Proto == UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, int(c.Proto))
	if err != nil {
		return socket{}, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	// With freebind, bind succeeds for an address that the node does not have yet.
	options := [][3]int{{level, freebind, 1}}
	if c.V6 {
		options = append(options, [3]int{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1})
	}
	if c.Proto == TCP {
		// Without SO_REUSEADDR, closed connections of a former listener would block the port for
		// a minute.
		options = append(options, [3]int{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1})
	} else {
		options = append(options, [3]int{unix.SOL_SOCKET, unix.SO_RCVBUF, 1})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
			return socket{}, fmt.Errorf("set option %d: %w", o[1], err)
		}
	}
	if err := unix.Bind(fd, at); err != nil {
		return socket{}, err
	}
	// While SO_REUSEADDR is set, other processes could listen on the port.
	if c.Proto == TCP {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0); err != nil {
			return socket{}, err
		}
	}
	if listen && c.Proto == TCP && !c.V6 {
		if err := unix.Listen(fd, 0); err != nil {
			return socket{}, err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return socket{}, err
	}
	return socket{fd, uint32(st.Ino)}, nil
}

// maxProcesses limits the processes, and the descriptors of each, that ownerOf reads.
const maxProcesses = 1 << 16

// Limits of files in /proc/PID, in bytes: comm and cgroup.
const (
	maxName    = 64
	maxCgroups = 16 << 10
)

// process returns a text for messages with the ID and name of the process that has a socket.
func process(inode uint32) string {
	pid, name := ownerOf(inode)
	switch pid {
	case 0:
		return "a process of the node"
	case os.Getpid():
		return fmt.Sprintf("this agent (process %d)", pid)
	}
	return fmt.Sprintf("process %d (%s)", pid, name)
}

// ownerOf returns the ID and name of the process that has a socket. It returns 0 if it finds no such
// process, for example because of missing permissions.
func ownerOf(inode uint32) (pid int, name string) {
	want := "socket:[" + strconv.FormatUint(uint64(inode), 10) + "]"
	all, err := safefile.Entries("/proc", maxProcesses)
	if err != nil && !errors.Is(err, safefile.ErrTooMany) {
		return 0, ""
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
			if n, err := unix.Readlink(filepath.Join(dir, f.Name()), b); err == nil && string(b[:n]) == want {
				name, _ := safefile.ReadFile(filepath.Join("/proc", e.Name(), "comm"), maxName)
				return pid, strings.TrimSpace(string(name))
			}
		}
	}
	return 0, ""
}

// Listener returns the process that listens on a port and would lose its packets to a host port, in
// the network namespace of the calling thread. podUID is the UID of the process's pod, or "" if the
// process is in no pod. who is a text with the process ID and name. An invalid addr means all
// addresses of the node. Both results are "" if there is no such process, or if the sockets cannot
// be listed.
func Listener(proto uint8, addr netip.Addr, port uint16) (podUID, who string) {
	for _, c := range Claims(proto, addr, port) {
		l, found, err := listenerOf(c, nil)
		if err != nil || !found {
			continue
		}
		if pid, _ := ownerOf(l.inode); pid != 0 {
			podUID = podOf(pid)
		}
		return podUID, process(l.inode)
	}
	return "", ""
}

// podOf returns the UID of the pod whose cgroup contains a process, or "".
func podOf(pid int) string {
	text, _ := safefile.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"), maxCgroups)
	for line := range strings.Lines(string(text)) {
		// ID, controllers and path (proc_pid_cgroup(5)).
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		if uid, _ := podcgroup.Locate(parts[2]); uid != "" {
			return uid
		}
	}
	return ""
}
