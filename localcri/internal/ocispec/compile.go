package ocispec

import (
	"fmt"
	"maps"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"

	"github.com/nodewright/nodewright/internal/rpcerror"
)

// Compile returns the configuration of a container. An error is a gRPC status.
func Compile(in *Input) (*specs.Spec, error) {
	if len(in.Sources) != len(in.Container.GetMounts()) || len(in.Devices) != len(in.Container.GetDevices()) {
		return nil, rpcerror.Errorf(codes.Internal, "%d sources of %d mounts, %d device lists of %d devices",
			len(in.Sources), len(in.Container.GetMounts()), len(in.Devices), len(in.Container.GetDevices()))
	}
	c := &compiler{in: in, spec: &specs.Spec{
		Hostname:    "", // set in the sandbox's UTS namespace
		Root:        &specs.Root{Path: in.Rootfs, Readonly: in.security().GetReadonlyRootfs()},
		Process:     &specs.Process{},
		Linux:       &specs.Linux{Resources: &specs.LinuxResources{}},
		Annotations: maps.Clone(in.Container.GetAnnotations()),
	}}
	for _, step := range []func() error{
		c.process, c.capabilities, c.namespaces, c.cgroup, c.resources, c.devices, c.mounts, c.paths, c.apparmor,
		c.seccomp, // last: the default profile depends on the capabilities
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	c.spec.Version = LeastVersion(c.spec)
	return c.spec, nil
}

// LeastVersion returns the oldest version of the specification that has all fields which s
// uses. Runtimes reject versions newer than their own; crun up to 1.8 rejects all versions
// except 1.0. ID-mapped and recursively read-only mounts, schedulers, I/O priorities and time
// namespaces are new in 1.1; network devices, memory policies and more of resctrl in 1.3. Compile
// uses the mounts only with runtimes that support them, and the others not at all.
func LeastVersion(s *specs.Spec) string {
	if l := s.Linux; l != nil && (len(l.NetDevices) > 0 || l.MemoryPolicy != nil || l.IntelRdt != nil && (len(l.IntelRdt.Schemata) > 0 || l.IntelRdt.EnableMonitoring)) {
		return "1.3.0"
	}
	if p := s.Process; p != nil && (p.Scheduler != nil || p.IOPriority != nil) {
		return "1.1.0"
	}
	if l := s.Linux; l != nil && slices.ContainsFunc(l.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.TimeNamespace }) {
		return "1.1.0"
	}
	for _, m := range s.Mounts {
		if mapsIDs(m) || slices.Contains(m.Options, "rro") {
			return "1.1.0"
		}
	}
	return "1.0.2"
}

func mapsIDs(m specs.Mount) bool {
	return len(m.UIDMappings)+len(m.GIDMappings) > 0 || slices.Contains(m.Options, "idmap") || slices.Contains(m.Options, "ridmap")
}

// CheckEdited rejects a configuration that, after the edits of CDI devices or of somebody outside,
// needs a feature that the handler's OCI runtime does not have.
func CheckEdited(s *specs.Spec, h Handler) error {
	for _, m := range s.Mounts {
		if mapsIDs(m) && !h.IDMap {
			return unable("mounts", m.Destination, "the OCI runtime has no ID-mapped mounts")
		}
	}
	switch l := s.Linux; {
	case l == nil:
	case len(l.NetDevices) > 0 && !h.NetDevices:
		return unable("netDevices", len(l.NetDevices), "the OCI runtime moves no network devices")
	case l.IntelRdt != nil && !h.IntelRdt:
		return unable("intelRdt", l.IntelRdt.ClosID, "the OCI runtime has no Intel RDT")
	}
	return nil
}

type compiler struct {
	in   *Input
	spec *specs.Spec
}

func invalid(field string, value any, allowed string) error {
	return rpcerror.New(codes.InvalidArgument, fmt.Sprintf("%s %s: %s", field, quote(value), allowed))
}

func unable(field string, value any, reason string) error {
	return rpcerror.New(codes.FailedPrecondition, fmt.Sprintf("%s %s: %s", field, quote(value), reason))
}

// longest is the length to which an error cuts a rejected value, in bytes.
const longest = 200

func quote(value any) string {
	s, ok := value.(string)
	if !ok {
		return fmt.Sprint(value)
	}
	if len(s) > longest {
		return fmt.Sprintf("%q...", s[:longest])
	}
	return fmt.Sprintf("%q", s)
}
