package ocispec

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Default paths that a container must not read (masked) or must not write (read-only). They do
// not apply to privileged containers, or if the CRI request has other paths.
var (
	maskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
		"/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// paths hides the paths that the request lists. The wire format cannot distinguish an empty
// list from a missing one. If the pod has a user namespace, an empty list means that no path is
// hidden (procMount Unmasked), which Kubernetes allows only in this case. Otherwise it means
// the default paths.
func (c *compiler) paths() error {
	if c.in.privileged() {
		return nil
	}
	choose := func(field string, asked, usual []string) ([]string, error) {
		if len(asked) == 0 && (!c.in.ownUserns() || c.in.linux().GetSecurityContext() == nil) {
			return slices.Clone(usual), nil
		}
		for _, p := range asked {
			if !path.IsAbs(p) || strings.ContainsRune(p, 0) {
				return nil, invalid("linux.security_context."+field, p, "must be an absolute path")
			}
		}
		return slices.Clone(asked), nil
	}
	var err error
	if c.spec.Linux.MaskedPaths, err = choose("masked_paths", c.in.security().GetMaskedPaths(), maskedPaths); err != nil {
		return err
	}
	c.spec.Linux.ReadonlyPaths, err = choose("readonly_paths", c.in.security().GetReadonlyPaths(), readonlyPaths)
	return err
}

func (c *compiler) apparmor() error {
	const field = "linux.security_context.apparmor"
	in := c.in
	profile := in.security().GetApparmor()
	if profile == nil {
		profile = olderProfile(in.security().GetApparmorProfile()) //nolint:staticcheck // older agents set only this field
	}
	localhost := profile.GetProfileType() == runtimeapi.SecurityProfile_Localhost
	switch {
	case profile != nil && localhost && !in.Machine.AppArmor:
		return unable(field+".localhost_ref", profile.GetLocalhostRef(), "the kernel has no AppArmor")
	case !in.Machine.AppArmor || profile != nil && profile.GetProfileType() == runtimeapi.SecurityProfile_Unconfined:
	case profile == nil && in.privileged():
	case localhost:
		name := strings.TrimPrefix(profile.GetLocalhostRef(), "localhost/")
		if !slices.Contains(in.Machine.AppArmorProfiles, name) {
			return unable(field+".localhost_ref", name, "is not loaded")
		}
		c.spec.Process.ApparmorProfile = name
	default:
		c.spec.Process.ApparmorProfile = in.Machine.AppArmorDefault
	}
	return nil
}

// olderProfile parses the string form of a profile, which older clients send. It returns nil if s
// is "".
func olderProfile(s string) *runtimeapi.SecurityProfile {
	switch s {
	case "":
		return nil
	case "unconfined":
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	case "runtime/default":
		return &runtimeapi.SecurityProfile{}
	default:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: s}
	}
}

func (c *compiler) seccomp() error {
	const field = "linux.security_context.seccomp"
	in, profile := c.in, c.in.security().GetSeccomp()
	if in.privileged() || profile == nil {
		return nil
	}
	switch t := profile.GetProfileType(); t {
	case runtimeapi.SecurityProfile_Unconfined:
		return nil
	case runtimeapi.SecurityProfile_RuntimeDefault:
		if in.Machine.Seccomp == nil {
			return unable(field+".profile_type", t, "the kernel or the OCI runtime has no seccomp")
		}
		p, err := in.Machine.Seccomp(c.spec)
		if err != nil {
			return unable(field+".profile_type", t, err.Error())
		}
		c.spec.Linux.Seccomp = p
		return nil
	case runtimeapi.SecurityProfile_Localhost:
		ref := profile.GetLocalhostRef()
		switch {
		case !path.IsAbs(ref):
			return invalid(field+".localhost_ref", ref, "must be an absolute path")
		case in.Machine.Seccomp == nil:
			return unable(field+".localhost_ref", ref, "the kernel or the OCI runtime has no seccomp")
		}
		var p specs.LinuxSeccomp
		if err := json.Unmarshal(in.SeccompProfile, &p); err != nil {
			return unable(field+".localhost_ref", ref, "does not parse: "+err.Error())
		}
		if p.DefaultAction == "" {
			return unable(field+".localhost_ref", ref, "has no defaultAction")
		}
		c.spec.Linux.Seccomp = &p
		return nil
	default:
		return invalid(field+".profile_type", int32(t), "must be RuntimeDefault, Unconfined or Localhost")
	}
}
