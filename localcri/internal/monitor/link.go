//go:build linux

package monitor

import (
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/wire"
)

// link sends and receives messages over a socket. One goroutine may receive while others send.
type link struct {
	f       *os.File
	raw     syscall.RawConn
	sending sync.Mutex
}

// buffers are shared by all links, so that an idle connection needs no buffer.
var buffers = sync.Pool{New: func() any { b := make([]byte, wire.MaxMessage+1); return &b }}

func newLink(fd int) (*link, error) {
	f := os.NewFile(uintptr(fd), "monitor")
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &link{f: f, raw: raw}, nil
}

func (l *link) close() { _ = l.f.Close() }

// send sends a message with duplicates of files.
func (l *link) send(m wire.Message, files []*os.File) error {
	b, err := m.Append(nil)
	if err != nil {
		return err
	}
	fds := make([]int, 0, len(files))
	for _, f := range files {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
		}
		if err != nil {
			return err
		}
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	if err := l.f.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	var sent error
	err = l.raw.Write(func(fd uintptr) bool {
		for {
			sent = unix.Sendmsg(int(fd), b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			if !errors.Is(sent, unix.EINTR) {
				return !errors.Is(sent, unix.EAGAIN)
			}
		}
	})
	runtime.KeepAlive(files)
	if err == nil {
		err = sent
	}
	return err
}

// receive waits for a message.
func (l *link) receive() (wire.Message, []*os.File, error) {
	var m wire.Message
	var fds []int
	var got error
	err := l.raw.Read(func(fd uintptr) bool {
		b := buffers.Get().(*[]byte)
		defer buffers.Put(b)
		var oob [128]byte
		n, oobn, flags, _, err := unix.Recvmsg(int(fd), *b, oob[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			return false
		case err != nil:
			got = err
			return true
		}
		fds = rights(oob[:oobn])
		if n == 0 {
			got = io.EOF
			return true
		}
		if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(fds) > wire.MaxFiles || slices.ContainsFunc(fds, isSocket) {
			got = wire.ErrMalformed
			return true
		}
		m, got = wire.Decode((*b)[:n])
		return true
	})
	if err == nil {
		err = got
	}
	files := make([]*os.File, len(fds))
	for i, fd := range fds {
		files[i] = fileOf(fd)
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return wire.Message{}, nil, err
	}
	return m, files, nil
}

// isSocket reports whether a descriptor is a socket. Received sockets are refused: a monitor
// sends none, and a socket could keep the other end of a connection open, so that the end of the
// connection would not be noticed.
func isSocket(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// fileOf makes an os.File of a received descriptor, and does not change its flags.
func fileOf(fd int) *os.File { return os.NewFile(uintptr(fd), "from monitor") }

// rights returns the descriptors in a control message.
func rights(oob []byte) []int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var all []int
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}
