package diskusage

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/kernel"
	"github.com/nodewright/nodewright/internal/kernelfile"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Held finds the deleted files that processes hold open or mapped. It returns each file once, even
// if several processes hold it. Use [NewHeld]; the zero value does not work.
type Held struct {
	proc string
	left int
	seen map[heldID]bool
}

type heldID struct{ dev, ino uint64 }

// NewHeld returns a Held that reads at most limit descriptors and mappings in all. proc is the
// mount point of procfs; "" means /proc.
func NewHeld(proc string, limit int) *Held {
	if proc == "" {
		proc = "/proc"
	}
	return &Held{proc: proc, left: limit, seen: map[heldID]bool{}}
}

// deleted is the suffix of links to deleted files in /proc/PID/fd and map_files.
const deleted = " (deleted)"

// maxMounts is the number of bytes of a mount table that are read at most.
const maxMounts = 1 << 20

// Of returns the deleted files that the processes hold, except files that an earlier call has
// returned. The order of the processes is random, so that repeated measurements find every file in
// spite of the limit of NewHeld. Of may contact the server of a network file system for a file that
// was deleted there, and may then block.
func (h *Held) Of(pids []string) []HeldFile {
	var out []HeldFile
	for _, i := range rand.Perm(len(pids)) {
		dir := filepath.Join(h.proc, pids[i])
		var mounts map[uint64]HeldFile // nil until needed
		for _, sub := range []string{"fd", "map_files"} {
			names, _ := safefile.Names(filepath.Join(dir, sub), max(h.left, 0)) // none if the process has exited
			h.left -= len(names)
			for _, n := range names {
				path := filepath.Join(dir, sub, n)
				to, err := os.Readlink(path)
				if err != nil || !strings.HasSuffix(to, deleted) || strings.HasPrefix(to, "/memfd:") {
					continue
				}
				st, err := statHeld(path)
				id := heldID{uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), st.Ino}
				if err != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG || h.seen[id] {
					continue
				}
				if mounts == nil {
					mounts = h.mounts(dir)
				}
				// The kernel's internal mounts, such as that of shared memory, are not in the table.
				if f, ok := mounts[st.Mnt_id]; ok {
					h.seen[id] = true
					f.Bytes = int64(st.Blocks) * 512
					out = append(out, f)
				}
			}
		}
	}
	return out
}

// statHeld returns the attributes of a link's target without opening it.
func statHeld(path string) (unix.Statx_t, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT,
		unix.STATX_TYPE|unix.STATX_NLINK|unix.STATX_INO|unix.STATX_BLOCKS|unix.STATX_MNT_ID, &st)
	return st, err
}

// mounts reads the mount table of a process (proc_pid_mountinfo(5)). It returns, by mount ID, a
// HeldFile with the fields that depend only on the mount.
func (h *Held) mounts(dir string) map[uint64]HeldFile {
	raw, _ := kernelfile.Read(filepath.Join(dir, "mountinfo"), 8<<10, maxMounts) // on error, the part that was read
	h.left -= len(raw) / 100                                                     // counts 100 bytes, about a line, like one descriptor
	out := map[uint64]HeldFile{}
	for line := range bytes.Lines(raw) {
		m, err := kernel.ParseMount(string(line))
		if err != nil {
			continue
		}
		f := HeldFile{Overlay: m.Type == "overlay", Root: m.Root, Device: unix.Mkdev(m.Major, m.Minor)}
		if f.Overlay {
			for _, option := range m.SuperOptions {
				if dir, is := strings.CutPrefix(option, "workdir="); is {
					f.Work = dir
				}
			}
		}
		out[uint64(m.ID)] = f
	}
	return out
}
