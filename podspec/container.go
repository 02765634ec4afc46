package podspec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/podmeta"
)

// Container compiles one container of the pod. The error is [Problems] or [ErrNoContainer]. With
// Problems, the plan is partial; dry runs may show it.
func Container(in Input, name string, o ContainerOptions) (*ContainerPlan, error) {
	c, group, path, err := Find(in.Pod, name)
	if err != nil {
		return nil, err
	}
	col := &collector{reason: ReasonCreateContainerConfig}
	plan := &ContainerPlan{Config: &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(o.RestartCount)},
		// The reference pins the image that was pulled: the name may refer to another image by
		// now. The name from the spec is for display only.
		Image:       &runtimeapi.ImageSpec{Image: o.Image.Ref, UserSpecifiedImage: c.Image, RuntimeHandler: in.RuntimeHandler},
		Labels:      podLabels(in.Pod),
		Annotations: containerAnnotations(in.Pod, c, o.RestartCount),
		WorkingDir:  c.WorkingDir,
		LogPath:     LogPath(c.Name, o.RestartCount),
		Stdin:       c.Stdin, StdinOnce: c.StdinOnce, Tty: c.TTY,
		StopSignal: stopSignal(c),
		Linux:      &runtimeapi.LinuxContainerConfig{Resources: containerResources(in, c, group)},
	}}
	conf := plan.Config
	// The labels are the kubelet's. Tools find containers by them, and the agent does after a
	// restart.
	conf.Labels[cri.LabelContainerName] = c.Name
	// Variables come first, since arguments and subPathExpr refer to them.
	e := env(in, c, path, col)
	if !e.full {
		// If the environment is too large, it is left out as a whole; e has recorded the problem.
		conf.Envs = e.list()
	}
	arguments(conf, c.Name, c.Command, c.Args, e, path, col)
	mounts(in, c, path, e, o, plan, col)
	conf.Linux.SecurityContext = security(in, c, group, path, o, col)
	// Must come after security, since the container's own settings take precedence, and before
	// mapIDs, which changes all mounts.
	attach(conf, in.Attached[c.Name])
	mapIDs(conf)
	// The runtime creates the log file, but not its directory.
	plan.Dirs = append([]Dir{{Path: filepath.Join(LogDirectory(in.Node.PodLogsDir, in.Pod), c.Name), Mode: 0o755}}, plan.Dirs...)
	plan.Warnings = col.warnings
	return plan, col.err()
}

// attach adds the devices and settings of plugins to a container. Annotations that the container
// has are kept.
func attach(conf *runtimeapi.ContainerConfig, a Attachment) {
	// Cloned, because all instances of the container share the attachment and mapIDs changes
	// mounts.
	for _, m := range a.Mounts {
		conf.Mounts = append(conf.Mounts, proto.CloneOf(m))
	}
	for _, d := range a.Devices {
		conf.Devices = append(conf.Devices, proto.CloneOf(d))
	}
	for _, name := range a.CDI {
		conf.CDIDevices = append(conf.CDIDevices, &runtimeapi.CDIDevice{Name: name})
	}
	for k, v := range a.Annotations {
		if _, ours := conf.Annotations[k]; !ours {
			conf.Annotations[k] = v
		}
	}
}

// LogPath returns the path of a container's log file, relative to the log directory of its pod.
func LogPath(container string, restartCount int32) string {
	return filepath.Join(container, strconv.Itoa(int(restartCount))+".log")
}

// Hash returns a hash of the fields whose change replaces a container: its name and image. It
// equals the kubelet's hash, so that the agent and the kubelet can adopt each other's
// containers.
func Hash(c *v1.Container) string {
	b, err := json.Marshal(struct {
		Image string `json:"image"` // the kubelet's order: by field name
		Name  string `json:"name"`
	}{c.Image, c.Name})
	if err != nil {
		panic(err) // a struct of strings can always be encoded
	}
	text := append(make([]byte, 0, 4*len(b)+16), "([]uint8)["...) // the kubelet hashes the bytes as fmt prints them
	for i, x := range b {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendUint(text, uint64(x), 10)
	}
	h := fnv.New32a()
	_, _ = h.Write(append(text, ']'))
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// containerAnnotations returns the annotations of a container. With them, the agent can stop the
// container and report its status even when the pod's spec is gone.
func containerAnnotations(pod *v1.Pod, c *v1.Container, restarts int32) map[string]string {
	a := map[string]string{
		cri.AnnotationHash:                     Hash(c),
		cri.AnnotationRestartCount:             strconv.Itoa(int(restarts)),
		cri.AnnotationTerminationMessagePath:   c.TerminationMessagePath,
		cri.AnnotationTerminationMessagePolicy: string(c.TerminationMessagePolicy),
	}
	if pod.DeletionGracePeriodSeconds != nil {
		a[cri.AnnotationPodDeletionGracePeriod] = strconv.FormatInt(*pod.DeletionGracePeriodSeconds, 10)
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		a[cri.AnnotationPodTerminationGracePeriod] = strconv.FormatInt(*g, 10)
	}
	asJSON := func(key string, v any) {
		// A value that cannot be encoded is omitted.
		if b, err := json.Marshal(v); err == nil {
			a[key] = string(b)
		}
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		asJSON(cri.AnnotationPreStop, c.Lifecycle.PreStop)
	}
	if len(c.Ports) > 0 {
		asJSON(cri.AnnotationPorts, c.Ports)
	}
	// podruntime compares them with the spec to find resizes (KEP-1287).
	asJSON(cri.AnnotationResources, v1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits})
	return a
}

// stopSignal returns the stop signal of a container (KEP-4960).
func stopSignal(c *v1.Container) runtimeapi.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	// The CRI names signals like SIGNAL_SIGRTMINPLUS1. An unknown signal becomes the runtime's
	// default.
	name := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*c.Lifecycle.StopSignal))
	return runtimeapi.Signal(runtimeapi.Signal_value["SIGNAL_"+name])
}

// Compiled is the result of [Compile].
type Compiled struct {
	Sandbox    *runtimeapi.PodSandboxConfig
	Containers []*ContainerPlan // init, regular, ephemeral
	Warnings   []Problem        // warnings of the sandbox and all containers
}

// Compile compiles the sandbox and every container, each as if created for the first time. After
// an error the result is partial; the error is [Problems] with all mistakes of the pod.
func Compile(in Input) (Compiled, error) {
	var (
		out Compiled
		all Problems
	)
	// note collects mistakes and continues, since a dry run shows the mistakes of all containers.
	note := func(err error) {
		if p, ok := err.(Problems); ok { //nolint:errorlint // Sandbox and Container return it unwrapped
			all = append(all, p...)
		} else if err != nil {
			all = append(all, Problem{Path: "spec", Reason: ReasonCreateContainerConfig, Detail: err.Error()})
		}
	}
	sandbox, err := Sandbox(in, 0)
	note(err)
	out.Sandbox, out.Warnings = sandbox.Config, sandbox.Warnings
	for _, name := range names(in.Pod) {
		plan, err := Container(in, name, ContainerOptions{})
		note(err)
		if plan != nil {
			out.Containers = append(out.Containers, plan)
			out.Warnings = append(out.Warnings, plan.Warnings...)
		}
	}
	return out, all.Err()
}

// names returns the names of a pod's containers, in the order of their start.
func names(pod *v1.Pod) []string {
	var out []string
	for i := range pod.Spec.InitContainers {
		out = append(out, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		out = append(out, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		out = append(out, pod.Spec.EphemeralContainers[i].Name)
	}
	return out
}

// terminationMessageFile returns the path of a container's termination message, below the pod's
// directory.
func terminationMessageFile(in Input, c *v1.Container, restarts int32) string {
	// Each instance has its own file, so that no instance reports the message of an earlier one.
	return filepath.Join(in.PodDir, "containers", c.Name, fmt.Sprintf("termination-log-%d", restarts))
}

// mounts adds a container's volumes and devices, its hosts file and its termination message file.
func mounts(in Input, c *v1.Container, path *field.Path, e *boundedEnv, o ContainerOptions, plan *ContainerPlan, col *collector) {
	ownHosts := false
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		// The container mounts its own file at /etc/hosts; it must not be replaced.
		if filepath.Clean(m.MountPath) == "/etc/hosts" {
			ownHosts = true
		}
		mnt, sub := volumeMount(in, m, path.Child("volumeMounts").Index(i), e, col)
		if mnt == nil {
			continue
		}
		if sub != "" {
			// The path in the plan is not final, since the volume may contain symbolic links. The
			// caller resolves them; see ContainerPlan.SubPaths.
			plan.SubPaths = append(plan.SubPaths, SubPath{
				Mount: len(plan.Config.Mounts), Index: i, Volume: m.Name, VolumePath: in.Volumes[m.Name], Path: sub,
			})
		}
		plan.Config.Mounts = append(plan.Config.Mounts, mnt)
	}
	for i := range c.VolumeDevices {
		d := &c.VolumeDevices[i]
		host, ok := in.Volumes[d.Name]
		if !ok {
			col.add(path.Child("volumeDevices").Index(i).Child("name"), "volume %q is not ready", d.Name)
			continue
		}
		// The permissions of a device cgroup: mknod, read and write.
		access := "mrw"
		if readOnlyVolume(volumeOf(in.Pod, d.Name)) {
			access = "r"
		}
		plan.Config.Devices = append(plan.Config.Devices, &runtimeapi.Device{
			ContainerPath: d.DevicePath, HostPath: host, Permissions: access,
		})
	}
	// Without a pod address there is no content yet. The containers of the pod share one file,
	// which is written again at each start.
	if !ownHosts && (len(in.PodIPs) > 0 || in.Pod.Spec.HostNetwork) && in.PodDir != "" {
		host := filepath.Join(in.PodDir, "etc-hosts")
		plan.Files = append(plan.Files, File{Path: host, Mode: 0o644, Content: hostsFile(in)})
		plan.Config.Mounts = append(plan.Config.Mounts, &runtimeapi.Mount{
			ContainerPath: "/etc/hosts", HostPath: host, SelinuxRelabel: true,
		})
	}
	// The message is written to a mounted file, so that the agent can read it without entering
	// the container.
	if c.TerminationMessagePath != "" && in.PodDir != "" {
		host := terminationMessageFile(in, c, o.RestartCount)
		plan.Dirs = append(plan.Dirs, Dir{Path: filepath.Dir(host), Mode: 0o750})
		// The container's user is unknown here, so all users may write.
		plan.Files = append(plan.Files, File{Path: host, Mode: 0o666, Keep: true})
		plan.Config.Mounts = append(plan.Config.Mounts, &runtimeapi.Mount{
			ContainerPath: c.TerminationMessagePath, HostPath: host, SelinuxRelabel: true,
		})
	}
}

// volumeMount compiles one mount of a container. The second result is the subpath within the
// volume, or "" for the whole volume.
func volumeMount(in Input, m *v1.VolumeMount, path *field.Path, e *boundedEnv, col *collector) (*runtimeapi.Mount, string) {
	// Checked before the volume, so that a mistake in the spec is reported even while the volume
	// is not ready.
	sub, ok := subPath(m, path, e, col)
	if !ok {
		return nil, ""
	}
	v := volumeOf(in.Pod, m.Name)
	out := &runtimeapi.Mount{
		ContainerPath: m.MountPath, Readonly: m.ReadOnly || readOnlyVolume(v), Propagation: propagation(m.MountPropagation),
		SelinuxRelabel:    relabelled(v),
		RecursiveReadOnly: recursiveReadOnly(in, m, path, col),
	}
	// Runtimes require an absolute path. Like the kubelet, take a relative path as relative to
	// the root.
	if !filepath.IsAbs(m.MountPath) {
		out.ContainerPath = "/" + m.MountPath
	}
	if v.Image != nil {
		// The runtime mounts the image and resolves the subpath in it (KEP-4639). Image volumes
		// are read-only.
		out.Image = &runtimeapi.ImageSpec{
			Image: cmp.Or(in.ImageRefs[m.Name], v.Image.Reference), UserSpecifiedImage: v.Image.Reference,
			RuntimeHandler: in.RuntimeHandler,
		}
		out.ImageSubPath, out.Readonly = sub, true
		return out, ""
	}
	host, there := in.Volumes[m.Name]
	if !there {
		col.add(path.Child("name"), "volume %q is not ready", m.Name)
		return nil, ""
	}
	out.HostPath = filepath.Join(host, sub)
	return out, sub
}

// recursiveReadOnly reports whether mounts below the volume are read-only too (KEP-3857).
func recursiveReadOnly(in Input, m *v1.VolumeMount, path *field.Path, col *collector) bool {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false
	}
	missing := ""
	switch {
	case *m.RecursiveReadOnly != v1.RecursiveReadOnlyEnabled && *m.RecursiveReadOnly != v1.RecursiveReadOnlyIfPossible:
		col.add(path.Child("recursiveReadOnly"), "%q is not supported: want Disabled, IfPossible or Enabled", clip(string(*m.RecursiveReadOnly)))
		return false
	case !m.ReadOnly:
		// First the conditions of the API, then the capability of the runtime.
		missing = "readOnly: true"
	case m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone:
		missing = "mountPropagation: None"
	case !in.Handler.RecursiveReadOnly:
		missing = fmt.Sprintf("a runtime handler that can do it, and %q cannot", in.RuntimeHandler)
	}
	// IfPossible falls back to a plain read-only mount; Enabled is an error.
	if missing != "" && *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled {
		col.add(path.Child("recursiveReadOnly"), "Enabled takes %s", missing)
	}
	return missing == ""
}

// subPath returns the subpath of a mount, which must not lead out of the volume. If it is "", the
// whole volume is mounted. ok is false if a problem was recorded.
func subPath(m *v1.VolumeMount, path *field.Path, e *boundedEnv, col *collector) (string, bool) {
	sub, name := m.SubPath, "subPath"
	if m.SubPathExpr != "" {
		name = "subPathExpr"
		expanded, unknown, ok := podmeta.ExpandWithin(m.SubPathExpr, maxPath, e.get)
		switch {
		case !ok:
			col.add(path.Child(name), "container %q: %q would have more than the %d bytes that a path may have", e.container, clip(m.SubPathExpr), maxPath)
			return "", false
		// An unresolved reference would become a directory with the literal name $(NAME).
		case len(unknown) > 0:
			col.add(path.Child(name), "%q refers to %s, which is not set", clip(m.SubPathExpr), strings.Join(unknown[:min(len(unknown), maxNamed)], ", "))
			return "", false
		}
		sub = expanded
	}
	if len(sub) > maxPath {
		col.add(path.Child(name), "container %q: %q has more than the %d bytes that a path may have", e.container, clip(sub), maxPath)
		return "", false
	}
	if sub == "" {
		return "", true
	}
	// Only the text is checked. The code that mounts the volume checks symbolic links.
	if filepath.IsAbs(sub) || strings.Contains("/"+sub+"/", "/../") {
		col.add(path.Child(name), "%q must be a relative path without '..'", clip(sub))
		return "", false
	}
	return sub, true
}

// propagation converts a mount propagation mode to the CRI's. If m is nil, the mode is None.
func propagation(m *v1.MountPropagationMode) runtimeapi.MountPropagation {
	if m == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	}
	switch *m {
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	default:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	}
}

// TerminationMessageFile returns the file on the node with a container's termination message, or
// "" if it has none.
func TerminationMessageFile(in Input, c *v1.Container, restartCount int32) string {
	if c.TerminationMessagePath == "" || in.PodDir == "" {
		return ""
	}
	return terminationMessageFile(in, c, restartCount)
}
