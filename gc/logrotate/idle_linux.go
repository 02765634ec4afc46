package logrotate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// inotify has the kernel tell of the next write to a file, and of no other: a watch ends
// with its first event (inotify(7), IN_ONESHOT), so a busy log costs nothing. It has one
// goroutine, which close ends.
type inotify struct {
	f *os.File
	// out has no buffer. While Run is busy, events wait in the kernel; those that do not fit
	// there are lost, and the look after Config.Interval finds what was written.
	out  chan string
	stop chan struct{}
	wg   sync.WaitGroup

	// mu guards keys, which are by watch descriptor.
	mu   sync.Mutex
	keys map[int32]string
}

// newIdle returns an inotify, or what does without it where the system has no more to give,
// as at the limit fs.inotify.max_user_instances.
func newIdle() idle {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return noIdle{}
	}
	n := &inotify{f: os.NewFile(uintptr(fd), "inotify"), out: make(chan string), stop: make(chan struct{}), keys: map[int32]string{}}
	n.wg.Go(n.read)
	return n
}

// arm implements idle. It may wait for the file system, so it is called through onDisk. It
// is false also at the limit of watches, fs.inotify.max_user_watches.
func (n *inotify) arm(key, path string) bool {
	conn, err := n.f.SyscallConn()
	if err != nil {
		return false
	}
	// The file system is asked before the lock is taken: it may not answer. No
	// link is followed to what is watched.
	held, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(held) }()
	path = fmt.Sprintf("/proc/self/fd/%d", held)
	// Held until the key is noted: the event may come at once, and read would not know whose
	// it is.
	n.mu.Lock()
	defer n.mu.Unlock()
	armed := false
	err = conn.Control(func(fd uintptr) {
		// A file that is renamed or removed is news too: the log may be another file from
		// then on. An armed file that is armed again keeps its descriptor.
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
	// Closing the file ends a read that waits, stop a send to a Run that does not receive
	// any more.
	close(n.stop)
	_ = n.f.Close()
	n.wg.Wait()
}

// read reads events: a watch descriptor, a mask, a cookie, the length of a name
// and the name, which watches of files have not.
func (n *inotify) read() {
	// A read returns whole events, as many as fit.
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
			// Unknown is the descriptor of an overflow, -1, and one that has ended.
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
