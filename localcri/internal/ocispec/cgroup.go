package ocispec

import (
	"path"
	"strings"
)

// scopePrefix is the prefix of the names of containers' systemd scopes.
const scopePrefix = "nodewright"

func (c *compiler) cgroup() error {
	const field = "linux.cgroup_parent"
	parent := c.in.Sandbox.GetLinux().GetCgroupParent()
	slice := strings.HasSuffix(parent, ".slice")
	switch {
	case c.in.Machine.Systemd && parent == "":
		parent = "system.slice"
	case c.in.Machine.Systemd && (!slice || strings.Contains(parent, "/")):
		return invalid(field, parent, "must be the name of a slice, since systemd makes the cgroups")
	case !c.in.Machine.Systemd && parent != "" && (slice || !path.IsAbs(parent) || path.Clean(parent) != parent):
		return invalid(field, parent, "must be a clean absolute path, since cgroups are made directly")
	}
	if c.in.Machine.Systemd {
		c.spec.Linux.CgroupsPath = parent + ":" + scopePrefix + ":" + c.in.ID
		return nil
	}
	c.spec.Linux.CgroupsPath = path.Join("/", parent, c.in.ID)
	return nil
}
