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

// maxOpen is the maximum number of open files of a container that are read.
const maxOpen = 1 << 16

// opened counts the processes of a cgroup, their files and sockets.
type opened struct{ processes, files, sockets uint64 }

// open counts the processes of a cgroup and their open files. Processes that end meanwhile are
// omitted. It returns nil if the cgroup does not exist any more.
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

// room has the size and the free space of a file system.
type room struct{ bytes, inodes, free uint64 }

func roomOf(dir string) *room {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return nil
	}
	return &room{bytes: st.Blocks * uint64(st.Bsize), inodes: st.Files, free: st.Ffree}
}
