package ocispec

import (
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// leastIDs is the minimum number of user IDs in a pod's user namespace: images rely on all
// 16-bit IDs.
const leastIDs = 65536

func (c *compiler) namespaces() error {
	in, l := c.in, c.spec.Linux
	opts, paths := in.security().GetNamespaceOptions(), in.Namespaces
	sandbox := in.Sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions()
	add := func(t specs.LinuxNamespaceType, path string) {
		l.Namespaces = append(l.Namespaces, specs.LinuxNamespace{Type: t, Path: path})
	}
	add(specs.MountNamespace, "")
	shared := func(field string, t specs.LinuxNamespaceType, mode runtimeapi.NamespaceMode, path string) error {
		switch {
		case mode == runtimeapi.NamespaceMode_NODE:
		case mode == runtimeapi.NamespaceMode_POD && path != "":
			add(t, path)
		case mode == runtimeapi.NamespaceMode_POD:
			return unable("linux.security_context.namespace_options."+field, mode, "the sandbox has no such namespace")
		default:
			return invalid("linux.security_context.namespace_options."+field, mode, "must be POD or NODE")
		}
		return nil
	}
	// The sandbox determines the network; a container cannot have another one.
	if err := shared("network", specs.NetworkNamespace, sandbox.GetNetwork(), paths.Network); err != nil {
		return err
	}
	if err := shared("network", specs.UTSNamespace, sandbox.GetNetwork(), paths.UTS); err != nil {
		return err
	}
	if err := shared("ipc", specs.IPCNamespace, opts.GetIpc(), paths.IPC); err != nil {
		return err
	}
	switch mode := opts.GetPid(); mode {
	case runtimeapi.NamespaceMode_NODE:
	case runtimeapi.NamespaceMode_CONTAINER:
		add(specs.PIDNamespace, "")
	case runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_TARGET:
		if paths.PID == "" {
			return unable("linux.security_context.namespace_options.pid", mode, "the process whose namespace is to be joined does not run")
		}
		add(specs.PIDNamespace, paths.PID)
	default:
		return invalid("linux.security_context.namespace_options.pid", mode, "must be POD, CONTAINER, NODE or TARGET")
	}
	if in.Machine.CgroupV2 && !in.privileged() {
		add(specs.CgroupNamespace, "")
	}
	return c.user()
}

// user sets the pod's user namespace.
func (c *compiler) user() error {
	const field = "linux.security_context.namespace_options.userns_options"
	u := c.in.userns()
	if u == nil || u.GetMode() == runtimeapi.NamespaceMode_NODE {
		return nil
	}
	if u.GetMode() != runtimeapi.NamespaceMode_POD {
		return invalid(field+".mode", u.GetMode(), "must be POD or NODE")
	}
	if c.in.Sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		return invalid(field+".mode", u.GetMode(), "must be NODE in a pod with the network of the node")
	}
	if c.in.Namespaces.User == "" {
		return unable(field+".mode", u.GetMode(), "the sandbox has no user namespace")
	}
	uids, err := mapping(field+".uids", u.GetUids())
	if err != nil {
		return err
	}
	gids, err := mapping(field+".gids", u.GetGids())
	if err != nil {
		return err
	}
	if !c.in.Handler.IDMap {
		return unable(field+".mode", u.GetMode(), "the OCI runtime has no ID-mapped mounts")
	}
	l := c.spec.Linux
	l.Namespaces = append(l.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace, Path: c.in.Namespaces.User})
	l.UIDMappings, l.GIDMappings = uids, gids
	return nil
}

func mapping(field string, m []*runtimeapi.IDMapping) ([]specs.LinuxIDMapping, error) {
	if len(m) != 1 {
		return nil, invalid(field, fmt.Sprintf("%d mappings", len(m)), "must be one")
	}
	switch one := m[0]; {
	case one.GetContainerId() != 0:
		return nil, invalid(field+"[0].container_id", one.GetContainerId(), "must be 0")
	case one.GetLength() < leastIDs:
		return nil, invalid(field+"[0].length", one.GetLength(), fmt.Sprintf("must be at least %d", leastIDs))
	case uint64(one.GetHostId())+uint64(one.GetLength()) > 1<<32:
		return nil, invalid(field+"[0].host_id", one.GetHostId(), "must leave room for the length below 4294967296")
	default:
		return ociMapping(m), nil
	}
}

func ociMapping(m []*runtimeapi.IDMapping) []specs.LinuxIDMapping {
	var out []specs.LinuxIDMapping
	for _, one := range m {
		out = append(out, specs.LinuxIDMapping{ContainerID: one.GetContainerId(), HostID: one.GetHostId(), Size: one.GetLength()})
	}
	return out
}
