package logrotate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// inotify reports the next write to a file. A watch ends with its first event (inotify(7),
// IN_ONESHOT), so a busy log costs nothing. It has one goroutine, which close ends.
type inotify struct {
	f *os.File
	// out has no buffer: while Run is busy, events wait in the kernel. If the kernel's queue
	// overflows, the next check after Config.Longest finds the write.
	out  chan string
	stop chan struct{}
	wg   sync.WaitGroup

	// mu guards keys. keys is indexed by watch descriptor.
	mu   sync.Mutex
	keys map[int32]string
}

// newIdle returns an inotify, or noIdle if the system has no free instance
// (fs.inotify.max_user_instances).
func newIdle() idle {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return noIdle{}
	}
	n := &inotify{f: os.NewFile(uintptr(fd), "inotify"), out: make(chan string), stop: make(chan struct{}), keys: map[int32]string{}}
	n.wg.Go(n.read)
	return n
}

// arm implements idle. It may block on the file system, so it is called through onDisk. It also
// returns false if the limit of watches is reached (fs.inotify.max_user_watches).
func (n *inotify) arm(key, path string) bool {
	conn, err := n.f.SyscallConn()
	if err != nil {
		return false
	}
	// Opened before the lock is taken, since the file system may hang. Links are not followed.
	held, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(held) }()
	path = fmt.Sprintf("/proc/self/fd/%d", held)
	// Held until the key is stored, since the event may come at once.
	n.mu.Lock()
	defer n.mu.Unlock()
	armed := false
	err = conn.Control(func(fd uintptr) {
		// A rename or removal counts too: the log may be another file then. Arming a file again
		// keeps its descriptor.
		wd, err := unix.InotifyAddWatch(int(fd), path, unix.IN_MODIFY|unix.IN_MOVE_SELF|unix.IN_DELETE_SELF|unix.IN_ONESHOT)
		if err == nil {
			n.keys[int32(wd)] = key
			armed = true
		}
	})
	return err == nil && armed
}

// written implements idle.
func (n *inotify) written() <-chan string { return n.out }

// close implements idle.
func (n *inotify) close() {
	// Closing the file ends a blocked read; stop ends a blocked send.
	close(n.stop)
	_ = n.f.Close()
	n.wg.Wait()
}

// read reads events: watch descriptor, mask, cookie, length of the name, and the name, which is
// empty for files.
func (n *inotify) read() {
	// A read returns whole events.
	buf := make([]byte, 64*unix.SizeofInotifyEvent)
	for {
		size, err := n.f.Read(buf)
		if errors.Is(err, os.ErrClosed) || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		for b := buf[:max(0, size)]; len(b) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(b))
			mask := binary.NativeEndian.Uint32(b[4:])
			b = b[min(len(b), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:]))):]
			n.mu.Lock()
			key, ok := n.keys[wd]
			if mask&unix.IN_IGNORED != 0 { // the watch has ended
				delete(n.keys, wd)
			}
			n.mu.Unlock()
			// Unknown descriptors: -1 for an overflow, or a watch that has ended.
			if !ok || mask&unix.IN_IGNORED != 0 {
				continue
			}
			select {
			case n.out <- key:
			case <-n.stop:
				return
			}
		}
	}
}
