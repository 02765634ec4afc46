package spaces

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/nspin"
)

// SetSysctls sets sysctls and the defaults in the namespaces of a sandbox, before any of its
// containers starts. network is the path of its network namespace. If network is "", the sandbox
// uses the host's.
//
// If the kernel does not know a name or rejects a value, the error is an InvalidArgument status.
// A default that the kernel does not know is omitted.
func (s *Spaces) SetSysctls(ctx context.Context, id, network string, sysctls map[string]string) error {
	p, err := s.Look(id)
	if err != nil {
		return err
	}
	own := Own{IPC: p.IPC != "", UTS: p.UTS != "", User: p.User != "", Network: network != ""}
	if err := CheckSysctls(sysctls, own); err != nil {
		return err
	}
	defaults, asked := DefaultSysctls(own), maps.Clone(sysctls)
	if defaults[pingRange] != "" && userns.RunningInUserNS() {
		defaults[pingRange] = "0 65535" // the kernel takes only IDs that exist in the user namespace
	}
	for name := range asked {
		path, _ := sysctlPath(name)
		maps.DeleteFunc(defaults, func(d, _ string) bool { dp, _ := sysctlPath(d); return dp == path })
	}
	flags := 0
	for flag, has := range map[int]bool{unix.CLONE_NEWIPC: own.IPC, unix.CLONE_NEWUTS: own.UTS, unix.CLONE_NEWNET: own.Network} {
		if has {
			flags |= flag
		}
	}
	if len(asked)+len(defaults) == 0 {
		return nil
	}
	_, err = detached.Next(ctx, &s.queue, id, func() (struct{}, error) {
		return struct{}{}, s.within(id, flags, network, func() error {
			for name, value := range defaults {
				if err := setSysctl(name, value); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("set sysctl %s: %w", name, err)
				}
			}
			for _, name := range slices.Sorted(maps.Keys(asked)) {
				if err := setSysctl(name, asked[name]); err != nil {
					return refused(name, asked[name], err)
				}
			}
			return nil
		})
	})
	return err
}

// setSysctl sets a sysctl, on a thread that ends afterwards. If an IPC namespace belongs to a
// user namespace, only the root user of that user namespace can write its sysctls;
// capabilities do not help (ipc_permissions in ipc/ipc_sysctl.c of Linux).
func setSysctl(name, value string) error {
	path, _ := sysctlPath(name)
	path = "/proc/sys/" + path
	err := writeProc(path, []byte(value))
	var st unix.Stat_t
	if !errors.Is(err, fs.ErrPermission) || unix.Lstat(path, &st) != nil || st.Uid == 0 {
		return err
	}
	if err := asUser(st.Uid); err != nil {
		return err
	}
	err = writeProc(path, []byte(value))
	return errors.Join(err, asUser(0))
}

// asUser changes the effective user of this thread only; Go's own functions change it for all
// threads.
func asUser(uid uint32) error {
	const keep = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(sysSetresuid, keep, uintptr(uid), keep); errno != 0 {
		return os.NewSyscallError("setresuid", errno)
	}
	return nil
}

func refused(name, value string, err error) error {
	field := fmt.Sprintf("linux.sysctls[%.200q]", name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return invalid(field, value, "the kernel has no such sysctl")
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ERANGE) || errors.Is(err, unix.EISDIR):
		return invalid(field, value, "the kernel does not take it: "+err.Error())
	default:
		return unable(field, value, err.Error())
	}
}

// writeProc writes a file of /proc in a single write, as the kernel requires.
func writeProc(path string, value []byte) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	_, err = unix.Write(fd, value)
	_ = unix.Close(fd)
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// within calls f on a thread in the sandbox's namespaces given by flags. network is the path of
// the network namespace.
func (s *Spaces) within(id string, flags int, network string, f func() error) (err error) {
	spaces := map[int]string{unix.CLONE_NEWIPC: s.path(id, ipcSuffix), unix.CLONE_NEWUTS: s.path(id, utsSuffix), unix.CLONE_NEWNET: network}
	var open []*os.File
	defer func() {
		for _, space := range open {
			_ = space.Close()
		}
	}()
	for flag, path := range spaces {
		if flags&flag == 0 {
			continue
		}
		space, err := nspin.OpenPinned(path, flag)
		if err != nil {
			return err
		}
		open = append(open, space)
	}
	nspin.OnThread(func() (back bool) {
		for _, space := range open {
			if err = enter(space, 0); err != nil {
				return false // the thread ends with its goroutine
			}
		}
		err = f()
		return false
	})
	return err
}
