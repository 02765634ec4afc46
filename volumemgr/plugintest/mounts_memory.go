package plugintest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

// ErrInjected is an error for MountMemory.Fail.
var ErrInjected = errors.New("injected fault")

// MountMemory is a mount table in memory. Mounts only change the table; the directories keep
// their content. The zero value is ready to use.
type MountMemory struct {
	// Fail is called before each call, unless it is nil. If it returns an error, the call returns
	// this error and does nothing. call is the number of the call, from 1.
	Fail func(call int, name string) error
	// After makes failing calls take effect nevertheless.
	After bool

	mu    sync.Mutex
	table mount.Table
	calls int
	log   []string
}

// Calls returns the number of calls.
func (m *MountMemory) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// Log returns the changes of the table, such as "bind /a /b" and "unmount /b".
func (m *MountMemory) Log() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.log)
}

// do runs one call under the lock.
func (m *MountMemory) do(ctx context.Context, name string, f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.Fail != nil {
		if err := m.Fail(m.calls, name); err != nil {
			if m.After {
				return errors.Join(err, f())
			}
			return err
		}
	}
	return f()
}

func (m *MountMemory) add(e mount.Entry) {
	e.ID = 100 + m.calls
	m.table = append(m.table, e)
}

// place returns the path of a target as the kernel's mount table shows it.
func place(target string) (string, os.FileInfo, error) {
	path, err := mount.Resolve(target)
	if err != nil {
		return "", nil, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return "", nil, err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		return "", nil, &os.PathError{Op: "mount", Path: target, Err: syscall.ELOOP}
	}
	return path, info, nil
}

// Mount adds a file system.
func (m *MountMemory) Mount(ctx context.Context, f mount.FileSystem) error {
	return m.do(ctx, "mount", func() error {
		path, info, err := place(f.Target)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return &os.PathError{Op: "mount", Path: f.Target, Err: syscall.ENOTDIR}
		}
		m.log = append(m.log, "mount "+f.Type+" "+f.Source+" "+path)
		m.add(mount.Entry{Root: "/", Target: path, Type: f.Type, Source: f.Source, Options: []string{"rw"}, SuperOptions: slices.Clone(f.Options)})
		return nil
	})
}

// Bind adds a bind mount. Its Source is the real path of the source file.
func (m *MountMemory) Bind(ctx context.Context, b mount.Bind) error {
	return m.do(ctx, "bind", func() error {
		source := b.Source
		if b.File != nil {
			source = "/proc/self/fd/" + strconv.Itoa(int(b.File.Fd()))
		}
		real, err := filepath.EvalSymlinks(source)
		if err != nil {
			return err
		}
		from, err := os.Stat(real)
		if err != nil {
			return err
		}
		path, to, err := place(b.Target)
		if err != nil {
			return err
		}
		if from.IsDir() != to.IsDir() {
			return &os.PathError{Op: "bind", Path: b.Target, Err: syscall.ENOTDIR}
		}
		options := slices.Clone(b.Options)
		if b.ReadOnly {
			options = append(options, "ro")
		}
		m.log = append(m.log, "bind "+real+" "+path)
		m.add(mount.Entry{Root: real, Target: path, Type: "bind", Source: real, Options: options})
		return nil
	})
}

// Unmount removes the topmost mount at target.
func (m *MountMemory) Unmount(ctx context.Context, target string, _ mount.How) error {
	return m.do(ctx, "unmount", func() error {
		path, err := mount.Resolve(target)
		if err != nil {
			return err
		}
		for i := len(m.table) - 1; i >= 0; i-- {
			if m.table[i].Target != path {
				continue
			}
			if len(m.table.Below(path)) > 0 {
				return &os.PathError{Op: "unmount", Path: target, Err: syscall.EBUSY}
			}
			m.log = append(m.log, "unmount "+path)
			m.table = slices.Delete(m.table, i, i+1)
			return nil
		}
		return fmt.Errorf("%s: %w", target, mount.ErrNotMounted)
	})
}

// Table returns a copy of the table.
func (m *MountMemory) Table(ctx context.Context) (out mount.Table, err error) {
	err = m.do(ctx, "table", func() error { out = slices.Clone(m.table); return nil })
	return out, err
}

// FailMountAt returns a function for MountMemory.Fail. It fails call n and, with crash, every
// later call.
func FailMountAt(n int, crash bool) func(int, string) error {
	return func(call int, name string) error {
		if call == n || crash && call > n {
			return fmt.Errorf("%s: %w", name, ErrInjected)
		}
		return nil
	}
}
