package oom

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// kmsg is /dev/kmsg. Each read gives one record.
type kmsg struct {
	f   *os.File
	buf []byte
}

// recordSize is more than the kernel's longest record (CONSOLE_EXT_LOG_MAX,
// 8 KiB).
const recordSize = 16 << 10

// openKmsg opens /dev/kmsg for reading, at its end or at its oldest record.
func openKmsg(fromEnd bool) (Log, error) {
	// Not blocking, so that a read waits in the runtime's poller, where Close
	// can end it.
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	whence := unix.SEEK_SET
	if fromEnd {
		whence = unix.SEEK_END
	}
	if _, err := f.Seek(0, whence); err != nil {
		return nil, errors.Join(fmt.Errorf("seek in the kernel's log: %w", err), f.Close())
	}
	return &kmsg{f: f, buf: make([]byte, recordSize)}, nil
}

func (k *kmsg) Next() ([]byte, error) {
	n, err := k.f.Read(k.buf)
	if errors.Is(err, unix.EPIPE) {
		return nil, ErrOverwritten
	}
	return k.buf[:n], err
}

func (k *kmsg) Close() error { return k.f.Close() }
