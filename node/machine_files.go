package node

import (
	"context"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/safefile"
)

const (
	// maxInherited limits a file that pods inherit from the node, in bytes; hosts files with
	// blocked hosts have some megabytes.
	maxInherited = 8 << 20
	// fileTimeout is the timeout for reading such a file.
	fileTimeout = 5 * time.Second
)

// MachineFiles returns the content of the node's files that pods inherit. A file is
// read again only when it has changed. A file that cannot be read, has more than 8 MiB,
// or is no regular file counts as empty, because a pod without the node's resolver is
// better than a pod that does not start. If the disk does not answer within 5 seconds,
// the last content is returned.
type MachineFiles struct {
	// ResolvConf is the path of the resolver's configuration. "-" means that there is none.
	ResolvConf string

	reads detached.Group[string]

	mu    sync.Mutex
	cache map[string]cachedFile
}

type cachedFile struct {
	modified time.Time
	size     int64
	content  string
}

// Resolv returns the content of ResolvConf.
func (n *MachineFiles) Resolv() string {
	if n.ResolvConf == "-" {
		return ""
	}
	return n.read(n.ResolvConf)
}

// Hosts returns the content of /etc/hosts.
func (n *MachineFiles) Hosts() string { return n.read("/etc/hosts") }

func (n *MachineFiles) read(path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), fileTimeout)
	defer cancel()
	content, err := n.reads.Do(ctx, path, func() (string, error) { return n.look(path), nil })
	if err != nil {
		return n.cached(path).content
	}
	return content
}

func (n *MachineFiles) look(path string) string {
	fi, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if c := n.cached(path); c.is(fi) {
		return c.content
	}
	b, err := safefile.ReadLinked(path, maxInherited)
	if err != nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cache == nil {
		n.cache = map[string]cachedFile{}
	}
	n.cache[path] = cachedFile{fi.ModTime(), fi.Size(), string(b)}
	return string(b)
}

func (n *MachineFiles) cached(path string) cachedFile {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cache[path]
}

func (c cachedFile) is(fi fs.FileInfo) bool {
	return !c.modified.IsZero() && c.modified.Equal(fi.ModTime()) && c.size == fi.Size()
}
