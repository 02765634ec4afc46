package podtext

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

func writeContainers(w io.Writer, p *v1.Pod) {
	var ephemeral []v1.Container
	for i := range p.Spec.EphemeralContainers {
		ephemeral = append(ephemeral, v1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for _, group := range []struct {
		title    string
		specs    []v1.Container
		statuses []v1.ContainerStatus
	}{
		{"Init containers", p.Spec.InitContainers, p.Status.InitContainerStatuses},
		{"Containers", p.Spec.Containers, p.Status.ContainerStatuses},
		{"Ephemeral containers", ephemeral, p.Status.EphemeralContainerStatuses},
	} {
		if len(group.specs) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s:\n", group.title)
		for i := range group.specs {
			writeContainer(w, &group.specs[i], group.statuses)
		}
	}
}

func writeContainer(w io.Writer, c *v1.Container, statuses []v1.ContainerStatus) {
	fmt.Fprintf(w, "  %s:\n", c.Name)
	row := func(key, value string) {
		if value != "" {
			fmt.Fprintf(w, "    %s:\t%s\n", key, OneLine(value))
		}
	}
	row("Image", c.Image)
	if i := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
		s := &statuses[i]
		row("Image ID", s.ImageID)
		row("Container ID", OrNone(s.ContainerID))
		row("State", stateLine(s.State))
		if s.LastTerminationState != (v1.ContainerState{}) {
			row("Last state", stateLine(s.LastTerminationState))
		}
		row("Ready", fmt.Sprint(s.Ready))
		row("Restart count", fmt.Sprint(s.RestartCount))
	}
	for _, f := range ContainerSpec(c) {
		row(f.Name, f.Value)
	}
	group := func(title string, n int) {
		if n > 0 {
			fmt.Fprintf(w, "    %s:\n", title)
		}
	}
	group("Environment", len(c.Env))
	for i := range c.Env {
		fmt.Fprintf(w, "      %s:\t%s\n", c.Env[i].Name, OneLine(env(&c.Env[i])))
	}
	group("Mounts", len(c.VolumeMounts))
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		fmt.Fprintf(w, "      %s\tfrom %s\n", OneLine(m.MountPath), Mount(m))
	}
	group("Devices", len(c.VolumeDevices))
	for _, d := range c.VolumeDevices {
		fmt.Fprintf(w, "      %s\tfrom %s\n", OneLine(d.DevicePath), d.Name)
	}
}

// Field is the name of a field and its value, as shown to people.
type Field struct{ Name, Value string }

// ContainerSpec returns the set fields of a container's spec, except the image, the environment
// variables and the mounts.
func ContainerSpec(c *v1.Container) []Field {
	var all []Field
	add := func(name, value string) {
		if value != "" {
			all = append(all, Field{name, value})
		}
	}
	if c.RestartPolicy != nil {
		add("Restart policy", string(*c.RestartPolicy))
	}
	add("Ports", joined(c.Ports, port))
	add("Command", strings.Join(c.Command, " "))
	add("Args", strings.Join(c.Args, " "))
	add("Requests", resources(c.Resources.Requests))
	add("Limits", resources(c.Resources.Limits))
	add("Liveness", probe(c.LivenessProbe))
	add("Readiness", probe(c.ReadinessProbe))
	add("Startup", probe(c.StartupProbe))
	for i := range c.EnvFrom {
		add("Environment from", envFrom(&c.EnvFrom[i]))
	}
	return all
}

func stateLine(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "Running since " + s.Running.StartedAt.Format(time.RFC1123Z)
	case s.Waiting != nil:
		return OneLine("Waiting " + inBrackets(s.Waiting.Reason) + s.Waiting.Message)
	case s.Terminated != nil:
		return OneLine(terminated(s.Terminated))
	default:
		return "Waiting"
	}
}

// terminated formats the state of a terminated container. It leaves out missing times: the runtime
// may have no record of the container.
func terminated(t *v1.ContainerStateTerminated) string {
	s := fmt.Sprintf("Terminated %sexit code %d", inBrackets(t.Reason), t.ExitCode)
	if t.Signal != 0 {
		s += fmt.Sprintf(", signal %d", t.Signal)
	}
	if !t.StartedAt.IsZero() {
		s += ", from " + t.StartedAt.Format(time.RFC1123Z)
	}
	if !t.FinishedAt.IsZero() {
		s += " to " + t.FinishedAt.Format(time.RFC1123Z)
	}
	return s + " " + t.Message
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ") "
}

func port(p v1.ContainerPort) string {
	s := fmt.Sprintf("%d/%s", p.ContainerPort, orWord(string(p.Protocol), "TCP"))
	if p.HostPort != 0 {
		s += fmt.Sprintf(" (host %s%d)", hostIP(p.HostIP), p.HostPort)
	}
	if p.Name != "" {
		s = p.Name + " " + s
	}
	return s
}

func hostIP(ip string) string {
	if ip == "" {
		return ""
	}
	return ip + ":"
}

func resources(of v1.ResourceList) string {
	if len(of) == 0 {
		return ""
	}
	amounts := map[string]string{}
	for name, q := range of {
		amounts[string(name)] = q.String()
	}
	return pairs(amounts)
}

// probe formats a probe's check and timing. It returns "" for nil.
func probe(p *v1.Probe) string {
	if p == nil {
		return ""
	}
	check := "unknown"
	switch h := p.ProbeHandler; {
	case h.Exec != nil:
		check = "exec " + strings.Join(h.Exec.Command, " ")
	case h.HTTPGet != nil:
		check = fmt.Sprintf("%s://%s:%s%s", strings.ToLower(orWord(string(h.HTTPGet.Scheme), "HTTP")), h.HTTPGet.Host, h.HTTPGet.Port.String(), h.HTTPGet.Path)
	case h.TCPSocket != nil:
		check = fmt.Sprintf("tcp %s:%s", h.TCPSocket.Host, h.TCPSocket.Port.String())
	case h.GRPC != nil:
		check = fmt.Sprintf("grpc :%d", h.GRPC.Port)
	}
	return fmt.Sprintf("%s, delay %ds, timeout %ds, period %ds, success %d, failure %d", check,
		p.InitialDelaySeconds, p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold)
}

// env formats the value of an environment variable, or the source of its value. It does not read
// the source.
func env(e *v1.EnvVar) string {
	f := e.ValueFrom
	switch {
	case f == nil:
		return e.Value
	case f.SecretKeyRef != nil:
		return fmt.Sprintf("from key %s of Secret %s%s", f.SecretKeyRef.Key, f.SecretKeyRef.Name, optionally(f.SecretKeyRef.Optional))
	case f.ConfigMapKeyRef != nil:
		return fmt.Sprintf("from key %s of ConfigMap %s%s", f.ConfigMapKeyRef.Key, f.ConfigMapKeyRef.Name, optionally(f.ConfigMapKeyRef.Optional))
	case f.FieldRef != nil:
		return "from field " + f.FieldRef.FieldPath
	case f.ResourceFieldRef != nil:
		return strings.TrimSpace("from " + f.ResourceFieldRef.Resource + " of " + orWord(f.ResourceFieldRef.ContainerName, "this container"))
	case f.FileKeyRef != nil:
		return fmt.Sprintf("from key %s of file %s in volume %s%s", f.FileKeyRef.Key, f.FileKeyRef.Path, f.FileKeyRef.VolumeName, optionally(f.FileKeyRef.Optional))
	}
	return none
}

func envFrom(e *v1.EnvFromSource) string {
	s := none
	switch {
	case e.SecretRef != nil:
		s = "Secret " + e.SecretRef.Name + optionally(e.SecretRef.Optional)
	case e.ConfigMapRef != nil:
		s = "ConfigMap " + e.ConfigMapRef.Name + optionally(e.ConfigMapRef.Optional)
	}
	if e.Prefix != "" {
		s += ", with prefix " + e.Prefix
	}
	return s
}

func optionally(o *bool) string {
	if o != nil && *o {
		return " (optional)"
	}
	return ""
}

// Mount formats a mount's volume and options, such as "data (ro, path a/b)".
func Mount(m *v1.VolumeMount) string {
	options := "rw"
	if m.ReadOnly {
		options = "ro"
	}
	if sub := orWord(m.SubPath, m.SubPathExpr); sub != "" {
		options += ", path " + sub
	}
	if m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
		options += ", " + string(*m.MountPropagation)
	}
	return OneLine(m.Name + " (" + options + ")")
}
