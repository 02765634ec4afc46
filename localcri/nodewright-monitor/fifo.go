//go:build linux

package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

var fifoNames = [3]string{"stdin", "stdout", "stderr"}

// fifos are both ends of a container's streams: the monitor's (ours) and the container's (theirs);
// -1 for a missing one.
type fifos struct {
	ours   [3]int
	theirs [3]int
}

// makeFIFOs creates the named pipes of a container. The container's ends of outputs are open for
// reading and writing, so that writes neither block nor fail while no monitor reads. Its end of
// standard input is open for reading only, so that the input can end.
func makeFIFOs(dir string, stdin bool) (fifos, error) {
	f := fifos{ours: [3]int{-1, -1, -1}, theirs: [3]int{-1, -1, -1}}
	if err := unix.Mkdir(dir, 0o700); err != nil && err != unix.EEXIST {
		return f, errors.New(dir + ": " + err.Error())
	}
	for i, name := range fifoNames {
		name = dir + "/" + name
		_ = unix.Unlink(name)
		if i == 0 && !stdin {
			continue
		}
		if err := f.make(i, name); err != nil {
			f.close()
			return f, errors.New(name + ": " + err.Error())
		}
	}
	return f, nil
}

func (f *fifos) make(i int, name string) error {
	if err := unix.Mkfifo(name, 0o600); err != nil {
		return err
	}
	if err := unix.Chmod(name, 0o666); err != nil {
		return err
	}
	both, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	if i > 0 {
		f.theirs[i] = both
		f.ours[i], err = unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		return err
	}
	defer closeFD(both)
	if f.ours[0], err = unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0); err == nil {
		f.theirs[0], err = unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	}
	return err
}

// openFIFO opens the monitor's end of a pipe that a predecessor has created.
func openFIFO(name string, mode int) (int, error) {
	fd, err := unix.Open(name, mode|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFIFO {
		err = unix.EINVAL
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (f *fifos) close() {
	closeFiles(f.ours[:])
	closeFiles(f.theirs[:])
}
