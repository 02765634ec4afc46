package kernel

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// Record writes a zip archive with the files of /proc, /sys and /sys/fs/cgroup that this module
// reads. Package kerneltest runs tests with such an archive, as on the recorded machine. root is the
// root directory of the machine.
//
// The archive contains names of disks and network interfaces. It contains no names of users, hosts or
// programs, no addresses and no serial numbers: Record replaces the names of swap files, the boot ID
// and the process's cgroups, and records only cgroups with well-known names, such as kubepods. It
// leaves out a file that does not exist, cannot be read in 5 seconds, or is longer than 1 MiB.
func Record(ctx context.Context, root fs.FS, w io.Writer) error {
	r := recorder{ctx: ctx, files: Of(root), calls: NewCalls(5*time.Second, func(int) {}), zip: zip.NewWriter(w)}
	for _, name := range recorded {
		r.record(name)
	}
	for _, dir := range r.cgroups() {
		for _, file := range cgroupFiles {
			r.record(path.Join(dir, file))
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(r.err, r.zip.Close())
}

// recorded are the recorded files outside of cgroups. A * matches any directory, but no file.
var recorded = []string{
	"proc/meminfo", "proc/stat", "proc/loadavg", "proc/swaps", "proc/partitions", "proc/diskstats", "proc/net/dev",
	"proc/self/cgroup", "proc/self/limits", "proc/pressure/cpu", "proc/pressure/io", "proc/pressure/memory",
	"proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max", "proc/sys/kernel/osrelease", "proc/sys/kernel/random/boot_id",
	"proc/sys/fs/inotify/max_user_watches", "proc/sys/fs/inotify/max_user_instances", "proc/sys/fs/file-max",
	"sys/devices/system/cpu/online", "sys/devices/system/cpu/*/topology/core_cpus_list", "sys/devices/system/cpu/*/topology/thread_siblings_list",
	"sys/devices/system/cpu/*/topology/physical_package_id", "sys/devices/system/cpu/*/cache/*/type", "sys/devices/system/cpu/*/cache/*/level",
	"sys/devices/system/cpu/*/cache/*/shared_cpu_list", "sys/devices/system/node/*/cpulist", "sys/devices/system/node/*/meminfo",
	"sys/devices/system/node/*/distance", "sys/devices/system/node/*/hugepages/*/nr_hugepages", "sys/kernel/mm/hugepages/*/nr_hugepages",
}

// cgroupFiles are the recorded files of a cgroup of v1 or v2.
var cgroupFiles = []string{
	"cgroup.controllers", "cgroup.subtree_control", "cpu.stat", "cpu.max", "cpu.weight", "cpu.pressure", "io.pressure", "io.stat",
	"memory.current", "memory.events", "memory.low", "memory.max", "memory.min", "memory.peak", "memory.pressure", "memory.stat",
	"memory.swap.current", "memory.swap.max", "pids.current", "pids.max",
	"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpuacct.stat", "cpuacct.usage", "cpuacct.usage_sys", "cpuacct.usage_user",
	"memory.failcnt", "memory.kmem.usage_in_bytes", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.memsw.limit_in_bytes",
	"memory.oom_control", "memory.soft_limit_in_bytes", "memory.usage_in_bytes", "blkio.throttle.io_service_bytes_recursive",
	"blkio.throttle.io_serviced_recursive", "blkio.throttle.io_service_bytes", "blkio.throttle.io_serviced",
}

// ofTheNode are the recorded children of the root cgroup. Their names contain no user, pod or
// program.
var ofTheNode = []string{"kubepods", "kubepods.slice", "system.slice", "user.slice", "machine.slice", "init.scope"}

const (
	maxRecordedFile  = 1 << 20
	maxRecordedFiles = 50_000 // a machine with 1,024 CPUs has 20,000
)

// recorder writes files of a machine to an archive.
type recorder struct {
	ctx   context.Context //nolint:containedctx // of Record
	files Files
	calls *Calls
	zip   *zip.Writer
	n     int
	err   error // the first error of writing the archive
}

// record adds to the recording the files that match a pattern of the list recorded.
func (r *recorder) record(pattern string) {
	before, after, many := strings.Cut(pattern, "*")
	if !many {
		r.file(pattern)
		return
	}
	for _, name := range r.dirs(path.Clean(before)) {
		r.record(before + name + after)
	}
}

// file adds a file to the recording, if it can be read.
func (r *recorder) file(name string) {
	b, err := do(r.ctx, r.calls, name, func() ([]byte, error) { return r.files.Read(name, maxRecordedFile) })
	if err != nil || r.err != nil {
		return
	}
	if r.n++; r.n > maxRecordedFiles {
		r.err = fmt.Errorf("more than %d files", maxRecordedFiles)
		return
	}
	f, err := r.zip.Create(name)
	if err == nil {
		_, err = f.Write(impersonal(name, b))
	}
	r.err = err
}

// dirs returns the names of the directories in a directory, or nil if it cannot be listed.
func (r *recorder) dirs(name string) []string {
	names, _ := do(r.ctx, r.calls, name, func() ([]string, error) { return r.files.Dirs(name, maxNames) })
	return names
}

// cgroups returns the directories of the cgroups to record, of all hierarchies.
func (r *recorder) cgroups() []string {
	const mount = "sys/fs/cgroup"
	roots := []string{mount}
	if _, err := do(r.ctx, r.calls, mount, func() ([]byte, error) { return r.files.Read(mount+"/cgroup.controllers", maxRecordedFile) }); err != nil {
		roots = nil // v1: one hierarchy per controller
		for _, controller := range r.dirs(mount) {
			roots = append(roots, path.Join(mount, controller))
		}
	}
	out := slices.Clone(roots)
	for _, root := range roots {
		for _, name := range r.dirs(root) {
			if slices.Contains(ofTheNode, name) {
				out = append(out, path.Join(root, name))
			}
		}
	}
	return out
}

// impersonal returns the content b of a file with the names of swap files and cgroups, and the boot
// ID, replaced.
func impersonal(name string, b []byte) []byte {
	switch name {
	case "proc/sys/kernel/random/boot_id":
		return []byte("00000000-0000-4000-8000-000000000000\n")
	case "proc/self/cgroup": // may name a user, a pod or a container
		var out bytes.Buffer
		for line := range bytes.Lines(b) {
			if i := bytes.LastIndexByte(line, ':'); i >= 0 {
				out.Write(line[:i])
				out.WriteString(":/\n")
			}
		}
		return out.Bytes()
	case "proc/swaps":
		var out bytes.Buffer
		for line := range bytes.Lines(b) {
			if file, rest, ok := bytes.Cut(line, []byte{' '}); ok && bytes.HasPrefix(file, []byte("/")) && !bytes.HasPrefix(file, []byte("/dev/")) {
				line = slices.Concat([]byte("/swap "), rest)
			}
			out.Write(line)
		}
		return out.Bytes()
	}
	return b
}
