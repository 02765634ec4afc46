package csi

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/safefile"
)

// maxPolicy limits a file of the machine's SELinux policy, in bytes; some have a hundred lines.
const maxPolicy = 64 << 10

// labels returns a function for the SELinux label of a container's files, by the
// machine's policy (selinux_lxc_contexts_path(3)): the label of all containers,
// unless a pod sets more. The policy is read once, at the first call.
func labels(root string) func(*v1.SELinuxOptions) (string, bool) {
	usual := sync.OnceValue(func() []string { return fileContext(root) })
	return func(o *v1.SELinuxOptions) (string, bool) {
		c := usual()
		if c == nil {
			return "", false
		}
		c = append([]string(nil), c...)
		for i, s := range []string{o.User, o.Role, "", o.Level} { // the type in a pod's options is for processes, not for files
			if s != "" {
				c[i] = s
			}
		}
		return strings.Join(c, ":"), true
	}
}

// fileContext returns the user, role, type and level of containers' files. It returns nil if the
// machine has no SELinux.
func fileContext(root string) []string {
	if _, err := os.Stat(filepath.Join(root, "sys/fs/selinux/enforce")); err != nil {
		return nil
	}
	policy := value(root, "etc/selinux/config", "SELINUXTYPE")
	if policy == "" || strings.Contains(policy, "/") || policy == ".." {
		return nil
	}
	c := strings.SplitN(value(root, "etc/selinux/"+policy+"/contexts/lxc_contexts", "file"), ":", 4)
	if len(c) != 4 {
		return nil
	}
	return c
}

// value returns the value of a key in a file of lines such as key = "value".
func value(root, name, key string) string {
	b, err := safefile.ReadLinked(filepath.Join(root, name), maxPolicy)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, "="); ok && strings.TrimSpace(k) == key {
			return strings.Trim(strings.TrimSpace(v), `"`)
		}
	}
	return ""
}
