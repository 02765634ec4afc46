package agent

import (
	"os"
	"sync"
	"time"
)

// nodeFiles hands out the content of the node's own files that pods inherit,
// and reads one again only when it changed. One that cannot be read counts as
// empty: a pod without the node's resolver beats no pod.
type nodeFiles struct {
	resolvConf string

	mu    sync.Mutex
	cache map[string]cachedFile
}

type cachedFile struct {
	modified time.Time
	size     int64
	content  string
}

func (n *nodeFiles) resolv() string {
	if n.resolvConf == "-" {
		return ""
	}
	return n.read(n.resolvConf)
}

func (n *nodeFiles) hosts() string { return n.read("/etc/hosts") }

func (n *nodeFiles) read(path string) string {
	fi, err := os.Stat(path)
	if err != nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if c, ok := n.cache[path]; ok && c.modified.Equal(fi.ModTime()) && c.size == fi.Size() {
		return c.content
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	if n.cache == nil {
		n.cache = map[string]cachedFile{}
	}
	n.cache[path] = cachedFile{fi.ModTime(), fi.Size(), string(b)}
	return string(b)
}
