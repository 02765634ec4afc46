package usage

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/safefile"
)

// maxOpen is how many open files of a container are looked at.
const maxOpen = 1 << 16

// opened is what the processes of a cgroup have.
type opened struct{ processes, files, sockets uint64 }

// open counts processes and their open files. Those that end meanwhile are left out; nil
// means that the cgroup is gone.
func (r *Reader) open(cgroup string) *opened {
	pids, err := r.Processes(cgroup)
	if err != nil {
		return nil
	}
	o := &opened{processes: uint64(len(pids))}
	for _, pid := range pids {
		dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
		names, err := safefile.Names(dir, maxOpen-int(o.files))
		for _, n := range names {
			o.files++
			if to, err := os.Readlink(filepath.Join(dir, n)); err == nil && strings.HasPrefix(to, "socket:") {
				o.sockets++
			}
		}
		if errors.Is(err, safefile.ErrTooMany) {
			break
		}
	}
	return o
}

// room is what a file system has.
type room struct{ bytes, inodes, free uint64 }

func roomOf(dir string) *room {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return nil
	}
	return &room{bytes: st.Blocks * uint64(st.Bsize), inodes: st.Files, free: st.Ffree}
}
