package numa

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/nodewright/nodewright/internal/kernel"
)

// ReadSysfs reads the machine from the root of a host's file system: os.DirFS("/"), or the mount
// point of the host's root. If CPUs go online or offline during the call, the result may be
// inconsistent; read it again.
func ReadSysfs(root fs.FS) (Machine, error) {
	r := reader{kernel.At(root)}
	online, err := r.cpus("sys/devices/system/cpu/online")
	if err != nil {
		return Machine{}, err
	}
	if online.Empty() {
		return Machine{}, fmt.Errorf("sys/devices/system/cpu/online is empty; want the CPUs that are online")
	}
	var m Machine
	for id := range online.All() {
		c, err := r.cpu(id)
		if err != nil {
			return Machine{}, err
		}
		m.CPUs = append(m.CPUs, c)
	}
	if err := siblingsAgree(m.CPUs); err != nil {
		return Machine{}, err
	}
	cacheBySocket(m.CPUs)
	if err := r.nodes(&m, online); err != nil {
		return Machine{}, err
	}
	if err := m.Validate(); err != nil {
		return Machine{}, fmt.Errorf("sys/devices/system: %w", err)
	}
	return m, nil
}

// reader reads small files. Its errors contain the file's name.
type reader struct{ kernel *kernel.Reader }

func (r reader) text(name string) (string, error) {
	text, err := r.kernel.Sys(context.Background(), strings.TrimPrefix(name, "sys/"))
	if err != nil {
		return "", named(name, err)
	}
	return text, nil
}

// named adds the file's name to err, unless it is already part of it.
func named(name string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}

func (r reader) cpus(name string) (CPUSet, error) {
	text, err := r.text(name)
	if err != nil {
		return CPUSet{}, err
	}
	s, err := ParseCPUs(text)
	if err != nil {
		return CPUSet{}, named(name, err)
	}
	return s, nil
}

func (r reader) number(name string) (int, error) {
	text, err := r.text(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s is %q; want a number", name, text)
	}
	return int(n), nil
}

// numbered returns the numbers of the directories in dir whose names are a prefix and a number.
// A missing directory has none.
func (r reader) numbered(dir, prefix string) ([]int, error) {
	dirs, err := r.kernel.SysDirs(context.Background(), strings.TrimPrefix(dir, "sys/"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, named(dir, err)
	}
	var numbers []int
	for _, name := range dirs {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(rest, 10, 31); err == nil && strconv.FormatUint(n, 10) == rest {
			numbers = append(numbers, int(n))
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

func cpuDir(id int) string { return path.Join("sys/devices/system/cpu", "cpu"+strconv.Itoa(id)) }
