package podspec

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Paths of /proc and /sys that are masked or read-only with procMount: Default. OCI runtimes have
// the same defaults.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// security compiles the security context of a container, whose fields take precedence over the
// pod's. A setting that cannot be met is a problem; it is never weakened.
func security(in Input, c *v1.Container, g Group, path *field.Path, o ContainerOptions, col *collector) *runtimeapi.LinuxContainerSecurityContext {
	psc := in.Pod.Spec.SecurityContext
	if psc == nil {
		psc = &v1.PodSecurityContext{}
	}
	csc := c.SecurityContext
	if csc == nil {
		csc = &v1.SecurityContext{}
	}
	// From here on, problems name the container's field, even if the value comes from the pod.
	path = path.Child("securityContext")
	privileged := isTrue(csc.Privileged)
	out := &runtimeapi.LinuxContainerSecurityContext{
		Privileged:               privileged,
		NamespaceOptions:         namespaces(in, g, o.TargetID),
		ReadonlyRootfs:           isTrue(csc.ReadOnlyRootFilesystem),
		SupplementalGroups:       supplementalGroups(in, psc),
		SupplementalGroupsPolicy: groupsPolicy(psc, col),
		// The API rejects allowPrivilegeEscalation: false in a privileged container.
		NoNewPrivs:     csc.AllowPrivilegeEscalation != nil && !*csc.AllowPrivilegeEscalation && !privileged,
		SelinuxOptions: selinux(firstSet(csc.SELinuxOptions, psc.SELinuxOptions)),
		Seccomp:        seccomp(in.Node, firstSet(csc.SeccompProfile, psc.SeccompProfile), privileged, path, col),
		Apparmor:       apparmor(firstSet(csc.AppArmorProfile, psc.AppArmorProfile), privileged, path, col),
	}
	out.ApparmorProfile = apparmorName(out.Apparmor) //nolint:staticcheck // old versions of containerd and CRI-O read only this field
	if masks(in.Pod, csc.ProcMount, path, col) {
		out.MaskedPaths, out.ReadonlyPaths = slices.Clone(maskedPaths), slices.Clone(readonlyPaths)
	}
	if csc.Capabilities != nil {
		out.Capabilities = &runtimeapi.Capability{}
		for _, n := range csc.Capabilities.Add {
			out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(n))
		}
		for _, n := range csc.Capabilities.Drop {
			out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(n))
		}
	}
	// Checked before the IDs are used.
	ids(psc, csc, path, col)
	user(out, psc, csc, o.Image)
	// Checked at each start, since the image's user may have changed.
	if isTrue(firstSet(csc.RunAsNonRoot, psc.RunAsNonRoot)) {
		if err := verifyNonRoot(firstSet(csc.RunAsUser, psc.RunAsUser), o.Image); err != nil {
			col.add(path.Child("runAsNonRoot"), "%v", err)
		}
	}
	return out
}

func isTrue(b *bool) bool { return b != nil && *b }

// firstSet returns the container's setting, or else the pod's.
func firstSet[T any](container, pod *T) *T {
	if container != nil {
		return container
	}
	return pod
}

// user sets the user of the container: from the spec, or else from the image.
func user(out *runtimeapi.LinuxContainerSecurityContext, psc *v1.PodSecurityContext, csc *v1.SecurityContext, image ImageFacts) {
	switch uid := firstSet(csc.RunAsUser, psc.RunAsUser); {
	case uid != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *uid}
	case image.UID != nil:
		// A numeric user is passed on as a number. The runtime looks up a name in the image.
		out.RunAsUser = &runtimeapi.Int64Value{Value: *image.UID}
	default:
		out.RunAsUsername = image.User
	}
	if gid := firstSet(csc.RunAsGroup, psc.RunAsGroup); gid != nil {
		out.RunAsGroup = &runtimeapi.Int64Value{Value: *gid}
	}
}

// maxID is the largest user or group ID that the API allows.
const maxID = math.MaxInt32

// validID reports whether the API allows a user or group ID.
func validID(id int64) bool { return id >= 0 && id <= maxID }

// ids rejects user and group IDs that the API does not allow. A runtime may truncate them to 32
// bits, which turns 4294967296 into root.
func ids(psc *v1.PodSecurityContext, csc *v1.SecurityContext, path *field.Path, col *collector) {
	check := func(p *field.Path, id *int64) {
		if id != nil && !validID(*id) {
			col.add(p, "invalid ID %d: must be 0 to %d", *id, maxID)
		}
	}
	pod := field.NewPath("spec", "securityContext")
	check(pod.Child("runAsUser"), psc.RunAsUser)
	check(pod.Child("runAsGroup"), psc.RunAsGroup)
	check(pod.Child("fsGroup"), psc.FSGroup)
	for i := range psc.SupplementalGroups {
		check(pod.Child("supplementalGroups").Index(i), &psc.SupplementalGroups[i])
	}
	if csc != nil {
		check(path.Child("runAsUser"), csc.RunAsUser)
		check(path.Child("runAsGroup"), csc.RunAsGroup)
	}
}

// verifyNonRoot returns an error if a container runs, or may run, as root.
func verifyNonRoot(uid *int64, image ImageFacts) error {
	switch {
	// The API does not check the image's user ID. Truncated to 32 bits, it may be 0.
	case uid == nil && image.UID != nil && !validID(*image.UID):
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id %d, must be 0 to %d", *image.UID, maxID)
	case uid != nil && *uid == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy: it is 0")
	case uid != nil:
		return nil
	case image.UID != nil && *image.UID == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root")
	// The name may have UID 0 in the image's /etc/passwd, which is not read here.
	case image.UID == nil && image.User != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root", image.User)
	// An image without a user runs as root. In a dry run without an image, the user is unknown.
	case image.UID == nil && image.Ref != "":
		return fmt.Errorf("container has runAsNonRoot and image will run as root")
	default:
		return nil
	}
}

// supplementalGroups returns the pod's fsGroup, its supplementalGroups and the groups of its
// volumes, without duplicates.
func supplementalGroups(in Input, psc *v1.PodSecurityContext) []int64 {
	var out []int64
	if psc.FSGroup != nil {
		out = append(out, *psc.FSGroup)
	}
	out = append(out, psc.SupplementalGroups...)
	// Groups of volumes, such as those of the pv.beta.kubernetes.io/gid annotation.
	for _, g := range in.VolumeGroups {
		if !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out
}

// groupsPolicy converts the policy to the CRI's (KEP-3619). An unknown policy is a problem and
// counts as Strict.
func groupsPolicy(psc *v1.PodSecurityContext, col *collector) runtimeapi.SupplementalGroupsPolicy {
	p := psc.SupplementalGroupsPolicy
	switch {
	case p == nil || *p == v1.SupplementalGroupsPolicyMerge:
		return runtimeapi.SupplementalGroupsPolicy_Merge
	case *p != v1.SupplementalGroupsPolicyStrict:
		col.add(field.NewPath("spec", "securityContext", "supplementalGroupsPolicy"), "%q is not supported: want Merge or Strict", clip(string(*p)))
	}
	return runtimeapi.SupplementalGroupsPolicy_Strict
}

// masks reports whether paths in /proc and /sys are masked for a container. Only a container in
// a user namespace may have them unmasked (KEP-4265).
func masks(pod *v1.Pod, p *v1.ProcMountType, path *field.Path, col *collector) bool {
	path = path.Child("procMount")
	own := pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers
	switch {
	case p == nil || *p == v1.DefaultProcMount:
	case *p != v1.UnmaskedProcMount:
		col.add(path, "%q is not supported: want Default or Unmasked", clip(string(*p)))
	case !own:
		// In the host's user namespace, the unmasked files would be the host's.
		col.add(path, "Unmasked needs spec.hostUsers: false")
	default:
		return false
	}
	return true
}

// selinux converts an SELinux label to the CRI's. If o is nil, the runtime chooses the label.
func selinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

// seccomp returns the seccomp profile of a container. If there is a problem it returns
// RuntimeDefault, so that a partial plan shows no weaker profile.
func seccomp(n Node, p *v1.SeccompProfile, privileged bool, path *field.Path, col *collector) *runtimeapi.SecurityProfile {
	unconfined := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	runtimeDefault := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	switch {
	// Privileged containers are unconfined, and so are all others if the node has no default.
	case p == nil && n.SeccompDefault && !privileged:
		return runtimeDefault
	case p == nil:
		return unconfined
	}
	switch p.Type {
	case v1.SeccompProfileTypeRuntimeDefault:
		return runtimeDefault
	case v1.SeccompProfileTypeLocalhost:
		// The path must stay below SeccompDir, so that a pod cannot load any file of the node.
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" || filepath.IsAbs(*p.LocalhostProfile) || strings.Contains("/"+*p.LocalhostProfile+"/", "/../") {
			col.add(path.Child("seccompProfile", "localhostProfile"), "a relative path without '..' is required with type Localhost")
			return runtimeDefault
		}
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(n.SeccompDir, *p.LocalhostProfile),
		}
	case v1.SeccompProfileTypeUnconfined:
		return unconfined
	default:
		col.add(path.Child("seccompProfile", "type"), "%q is not supported: want RuntimeDefault, Localhost or Unconfined", clip(string(p.Type)))
		return runtimeDefault
	}
}

// apparmor returns the AppArmor profile of a container. The runtime checks that a Localhost
// profile is loaded in the kernel.
func apparmor(p *v1.AppArmorProfile, privileged bool, path *field.Path, col *collector) *runtimeapi.SecurityProfile {
	switch {
	case p == nil && privileged:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	case p == nil:
		return nil // the runtime applies its default
	}
	path = path.Child("appArmorProfile")
	switch p.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
	case v1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	case v1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile != nil && strings.TrimSpace(*p.LocalhostProfile) != "" {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}
		}
		col.add(path.Child("localhostProfile"), "the name of a loaded profile is required with type Localhost")
	default:
		col.add(path.Child("type"), "%q is not supported: want RuntimeDefault, Localhost or Unconfined", clip(string(p.Type)))
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
}

// apparmorName returns the profile in the format of the CRI's deprecated string field.
func apparmorName(p *runtimeapi.SecurityProfile) string {
	switch {
	case p == nil:
		return ""
	case p.ProfileType == runtimeapi.SecurityProfile_Unconfined:
		return v1.DeprecatedAppArmorBetaProfileNameUnconfined
	case p.ProfileType == runtimeapi.SecurityProfile_Localhost:
		return v1.DeprecatedAppArmorBetaProfileNamePrefix + p.LocalhostRef
	default:
		return v1.DeprecatedAppArmorBetaProfileRuntimeDefault
	}
}
