package podmgr

import (
	"fmt"
	"maps"
	"net"
	"path"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/internal/podcheck"
)

// validatePod finds the mistakes that the API server would refuse a pod for,
// as far as a node would stumble over them, and the references that a pod
// without an API server cannot have.
func validatePod(p *v1.Pod) field.ErrorList {
	// Package podcheck has what also holds for pods of an API server.
	v := &podValidator{pod: p, errs: podcheck.Pod(p)}
	meta := field.NewPath("metadata")
	// In order: problems are compared with those
	// before, and a change of order would be logged.
	for _, k := range sets.List(sets.KeySet(p.Labels)) {
		v.says(meta.Child("labels"), k, validation.IsQualifiedName(k))
		v.says(meta.Child("labels").Key(k), p.Labels[k], validation.IsValidLabelValue(p.Labels[k]))
	}
	for _, k := range sets.List(sets.KeySet(p.Annotations)) {
		// As in the API server, which allows capitals in the keys of annotations.
		v.says(meta.Child("annotations"), k, validation.IsQualifiedName(strings.ToLower(k)))
	}
	v.spec(&p.Spec, field.NewPath("spec"))
	return v.errs
}

// podValidator collects the mistakes of one pod. The names of volumes and claims
// must be collected before the containers that refer to them are checked.
type podValidator struct {
	pod  *v1.Pod
	errs field.ErrorList
	// volumes are the names in spec.volumes.
	volumes map[string]bool
	claims  map[string]bool // by their name in the pod
	// ports are protocol, address and port of all
	// containers so far: two cannot listen on the same.
	ports map[string]bool // of the host
}

// add drops mistakes beyond maxMistakes: a pod with a million
// of them must not cost more than one with a hundred.
func (v *podValidator) add(e *field.Error) {
	if len(v.errs) < maxMistakes {
		v.errs = append(v.errs, e)
	}
}

// says reports what a function of package validation found.
func (v *podValidator) says(p *field.Path, value any, msgs []string) {
	for _, m := range msgs {
		v.add(field.Invalid(p, value, m))
	}
}

// notNegative checks a field that may be nil, which means that it is not set.
func (v *podValidator) notNegative(p *field.Path, n *int64) {
	if n != nil && *n < 0 {
		v.add(field.Invalid(p, *n, "must be 0 or more"))
	}
}

// spec checks the pod's own fields, and then its containers.
func (v *podValidator) spec(s *v1.PodSpec, p *field.Path) {
	// With None, nothing but dnsConfig is written to resolv.conf.
	if s.DNSPolicy == v1.DNSNone && (s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0) {
		v.add(field.Required(p.Child("dnsConfig", "nameservers"), "with dnsPolicy None"))
	}
	v.notNegative(p.Child("terminationGracePeriodSeconds"), s.TerminationGracePeriodSeconds)
	// With 0 seconds the pod would be at its end before it starts.
	if d := s.ActiveDeadlineSeconds; d != nil && *d < 1 {
		v.add(field.Invalid(p.Child("activeDeadlineSeconds"), *d, "must be 1 or more"))
	}
	if s.Hostname != "" {
		v.says(p.Child("hostname"), s.Hostname, validation.IsDNS1123Label(s.Hostname))
	}
	if s.Subdomain != "" {
		v.says(p.Child("subdomain"), s.Subdomain, validation.IsDNS1123Label(s.Subdomain))
	}
	for i, a := range s.HostAliases {
		if net.ParseIP(a.IP) == nil {
			v.add(field.Invalid(p.Child("hostAliases").Index(i).Child("ip"), a.IP, "must be an IP address"))
		}
	}
	for _, res := range slices.Sorted(maps.Keys(s.Overhead)) {
		if q := s.Overhead[res]; q.Sign() < 0 {
			v.add(field.Invalid(p.Child("overhead").Key(string(res)), q.String(), "must be 0 or more"))
		}
	}
	v.scheduling(s, p)
	// Names of claims and volumes are collected here, before the containers.
	v.names(s, p)
	v.references(s, p)
	v.volumeList(s.Volumes, p.Child("volumes"))
	v.ports = map[string]bool{}
	if len(s.Containers) == 0 {
		v.add(field.Required(p.Child("containers"), "at least one"))
	}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		cp := p.Child("initContainers").Index(i)
		v.container(c, cp)
		// A probe needs a container that keeps running: among
		// init containers only sidecars do (KEP-753).
		if c.RestartPolicy == nil && (c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil || c.Lifecycle != nil) {
			v.add(field.Forbidden(cp, "probes and lifecycle need restartPolicy Always on an init container"))
		}
	}
	for i := range s.Containers {
		v.container(&s.Containers[i], p.Child("containers").Index(i))
	}
	// The API has them in a subresource, never in a pod that is created.
	if len(s.EphemeralContainers) > 0 {
		v.add(field.Forbidden(p.Child("ephemeralContainers"), "may not be in a manifest"))
	}
	if sc := s.SecurityContext; sc != nil {
		v.podSecurity(sc, p.Child("securityContext"))
	}
}

// references refuses what only an API server could resolve.
func (v *podValidator) references(s *v1.PodSpec, p *field.Path) {
	// Tokens of service accounts come from the API server.
	if s.ServiceAccountName != "" {
		v.add(field.Forbidden(p.Child("serviceAccountName"), "static pods may not reference service accounts"))
	}
	if s.DeprecatedServiceAccount != "" {
		v.add(field.Forbidden(p.Child("serviceAccount"), "static pods may not reference service accounts"))
	}
	v.resourceClaims(s, p.Child("resourceClaims"))
}

// volumeList checks the volumes and collects their
// names. podcheck.Pod checks the names themselves.
func (v *podValidator) volumeList(vols []v1.Volume, p *field.Path) {
	v.volumes = map[string]bool{}
	for i := range vols {
		vol, vp := &vols[i], p.Index(i)
		v.volumes[vol.Name] = true
		if n := setFields(vol.VolumeSource); n > 1 {
			v.add(field.Forbidden(vp, fmt.Sprintf("has %d sources; want one", n)))
		}
		v.volumeSource(&vol.VolumeSource, vp)
		v.sources(&vol.VolumeSource, vp)
	}
}

// setFields counts what a volume is to come from. By reflection, so that kinds of volumes
// that the API gets later are counted as well.
func setFields(source any) int {
	n := 0
	s := reflect.ValueOf(source) // all its fields are pointers
	for i := range s.NumField() {
		if !s.Field(i).IsNil() {
			n++
		}
	}
	return n
}

// volumeSource checks the references to other objects and
// to paths of the host; sources checks the other fields.
func (v *podValidator) volumeSource(vol *v1.VolumeSource, p *field.Path) {
	if c := vol.PersistentVolumeClaim; c != nil && c.ClaimName == "" {
		v.add(field.Required(p.Child("persistentVolumeClaim", "claimName"), ""))
	}
	if e := vol.Ephemeral; e != nil && e.VolumeClaimTemplate == nil {
		v.add(field.Required(p.Child("ephemeral", "volumeClaimTemplate"), ""))
	}
	// With '..' the path would hide which directory of the
	// host is meant; the API server refuses it, too.
	if h := vol.HostPath; h != nil && (!path.IsAbs(h.Path) || strings.Contains("/"+h.Path+"/", "/../")) {
		v.add(field.Invalid(p.Child("hostPath", "path"), h.Path, "must be an absolute path without '..'"))
	}
	if s := vol.Secret; s != nil && s.SecretName == "" {
		v.add(field.Required(p.Child("secret", "secretName"), ""))
	}
	if c := vol.ConfigMap; c != nil && c.Name == "" {
		v.add(field.Required(p.Child("configMap", "name"), ""))
	}
	if vol.Projected == nil {
		return
	}
	for j := range vol.Projected.Sources {
		v.projection(&vol.Projected.Sources[j], p.Child("projected", "sources").Index(j))
	}
}

// projection checks one source of a projected volume.
// Tokens and trust bundles come from an API server.
func (v *podValidator) projection(src *v1.VolumeProjection, p *field.Path) {
	if src.ServiceAccountToken != nil {
		v.add(field.Forbidden(p.Child("serviceAccountToken"), "static pods may not reference service accounts"))
	}
	if src.ClusterTrustBundle != nil {
		v.add(field.Forbidden(p.Child("clusterTrustBundle"), "static pods may not reference cluster trust bundles"))
	}
	if src.Secret != nil && src.Secret.Name == "" {
		v.add(field.Required(p.Child("secret", "name"), ""))
	}
	if src.ConfigMap != nil && src.ConfigMap.Name == "" {
		v.add(field.Required(p.Child("configMap", "name"), ""))
	}
}

// container checks a container or an init container. The
// names of volumes and claims must have been collected.
func (v *podValidator) container(c *v1.Container, p *field.Path) {
	// The API server refuses blanks around a name as well, rather than trim them.
	if c.Image == "" {
		v.add(field.Required(p.Child("image"), ""))
	} else if strings.TrimSpace(c.Image) != c.Image {
		v.add(field.Invalid(p.Child("image"), c.Image, "must not have blanks at its ends"))
	}
	v.portList(c.Ports, p.Child("ports"))
	for i := range c.Env {
		v.env(&c.Env[i], p.Child("env").Index(i))
	}
	for i := range c.EnvFrom {
		src, ep := &c.EnvFrom[i], p.Child("envFrom").Index(i)
		if (src.ConfigMapRef == nil) == (src.SecretRef == nil) {
			v.add(field.Invalid(ep, "", "must have one of configMapRef and secretRef"))
		}
		if r := src.ConfigMapRef; r != nil {
			v.says(ep.Child("configMapRef", "name"), r.Name, validation.IsDNS1123Subdomain(r.Name))
		}
		if r := src.SecretRef; r != nil {
			v.says(ep.Child("secretRef", "name"), r.Name, validation.IsDNS1123Subdomain(r.Name))
		}
	}
	v.mountList(c, p)
	v.resources(c.Resources, p.Child("resources"))
	v.resizePolicies(c.ResizePolicy, p.Child("resizePolicy"))
	v.probe(c.LivenessProbe, p, "livenessProbe")
	v.probe(c.ReadinessProbe, p, "readinessProbe")
	v.probe(c.StartupProbe, p, "startupProbe")
	if l := c.Lifecycle; l != nil {
		v.hook(l.PostStart, p.Child("lifecycle", "postStart"))
		v.hook(l.PreStop, p.Child("lifecycle", "preStop"))
	}
	if sc := c.SecurityContext; sc != nil {
		v.security(sc, p.Child("securityContext"))
	}
}

// portList checks the ports of one container, and those
// of the host against all containers before it.
func (v *podValidator) portList(ports []v1.ContainerPort, p *field.Path) {
	names := map[string]bool{}
	for i, cp := range ports {
		pp := p.Index(i)
		if cp.Name != "" {
			v.says(pp.Child("name"), cp.Name, validation.IsValidPortName(cp.Name))
			if names[cp.Name] {
				v.add(field.Duplicate(pp.Child("name"), cp.Name))
			}
			names[cp.Name] = true
		}
		v.says(pp.Child("containerPort"), cp.ContainerPort, validation.IsValidPortNum(int(cp.ContainerPort)))
		// 0 means that the port is not mapped to the host.
		if cp.HostPort == 0 {
			continue
		}
		v.says(pp.Child("hostPort"), cp.HostPort, validation.IsValidPortNum(int(cp.HostPort)))
		// Nothing maps ports in the host's network, so they cannot differ.
		if v.pod.Spec.HostNetwork && cp.HostPort != cp.ContainerPort {
			v.add(field.Invalid(pp.Child("hostPort"), cp.HostPort, "must equal containerPort with hostNetwork"))
		}
		// The same port on two addresses of the host is no conflict.
		key := fmt.Sprintf("%s/%s/%d", cp.Protocol, cp.HostIP, cp.HostPort)
		if v.ports[key] {
			v.add(field.Duplicate(pp.Child("hostPort"), key))
		}
		v.ports[key] = true
	}
}

// env checks a variable, which has a value or one source of a value.
func (v *podValidator) env(e *v1.EnvVar, p *field.Path) {
	// An entry of an environment is NAME=VALUE, and ends with a NUL byte (POSIX).
	if e.Name == "" {
		v.add(field.Required(p.Child("name"), ""))
	} else if strings.ContainsAny(e.Name, "=\x00") {
		v.add(field.Invalid(p.Child("name"), e.Name, "must not contain '='"))
	}
	f := e.ValueFrom
	if f == nil {
		return
	}
	n := 0
	for _, set := range []bool{f.FieldRef != nil, f.ResourceFieldRef != nil, f.ConfigMapKeyRef != nil, f.SecretKeyRef != nil, f.FileKeyRef != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		v.add(field.Invalid(p.Child("valueFrom"), "", "must have exactly one source"))
	}
	if r := f.ConfigMapKeyRef; r != nil {
		v.keyRef(r.Name, r.Key, p.Child("valueFrom", "configMapKeyRef"))
	}
	if r := f.SecretKeyRef; r != nil {
		v.keyRef(r.Name, r.Key, p.Child("valueFrom", "secretKeyRef"))
	}
	if e.Value != "" {
		v.add(field.Invalid(p.Child("valueFrom"), "", "must not stand beside a value"))
	}
}

// keyRef checks what names a key of an object.
func (v *podValidator) keyRef(name, key string, p *field.Path) {
	v.says(p.Child("name"), name, validation.IsDNS1123Subdomain(name))
	if key == "" {
		v.add(field.Required(p.Child("key"), ""))
	} else {
		v.says(p.Child("key"), key, validation.IsConfigMapKey(key))
	}
}

// mountList checks the mounts and block devices of a container against the pod's volumes.
func (v *podValidator) mountList(c *v1.Container, p *field.Path) {
	paths := map[string]bool{}
	for i := range c.VolumeMounts {
		m, mp := &c.VolumeMounts[i], p.Child("volumeMounts").Index(i)
		if !v.volumes[m.Name] {
			v.add(field.NotFound(mp.Child("name"), m.Name))
		}
		// Two mounts on one path would hide each other.
		switch {
		case m.MountPath == "":
			v.add(field.Required(mp.Child("mountPath"), ""))
		case paths[m.MountPath]:
			v.add(field.Invalid(mp.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths[m.MountPath] = true
		if m.SubPath != "" && m.SubPathExpr != "" {
			v.add(field.Invalid(mp.Child("subPathExpr"), m.SubPathExpr, "must not stand beside subPath"))
		}
		// A path with '..' would lead out of the volume, into the node.
		if s := m.SubPath; path.IsAbs(s) || strings.Contains("/"+s+"/", "/../") {
			v.add(field.Invalid(mp.Child("subPath"), s, "must be a relative path without '..'"))
		}
		if s := m.SubPathExpr; path.IsAbs(s) || strings.Contains("/"+s+"/", "/../") {
			v.add(field.Invalid(mp.Child("subPathExpr"), s, "must be a relative path without '..'"))
		}
		// Bidirectional mounts appear on the host and in other
		// pods, so they are for privileged containers alone.
		privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
		if m.MountPropagation != nil && *m.MountPropagation == v1.MountPropagationBidirectional && !privileged {
			v.add(field.Forbidden(mp.Child("mountPropagation"), "Bidirectional needs a privileged container"))
		}
	}
	for i := range c.VolumeDevices {
		if d := &c.VolumeDevices[i]; !v.volumes[d.Name] {
			v.add(field.NotFound(p.Child("volumeDevices").Index(i).Child("name"), d.Name))
		}
	}
}

// resources checks the requests, which have been filled in from the limits, against them.
func (v *podValidator) resources(r v1.ResourceRequirements, p *field.Path) {
	v.claimsOf(r.Claims, p.Child("claims"))
	v.quantities(r.Limits, p.Child("limits"))
	v.quantities(r.Requests, p.Child("requests"))
	for _, res := range slices.Sorted(maps.Keys(r.Requests)) {
		req := r.Requests[res]
		lim, ok := r.Limits[res]
		if ok && req.Cmp(lim) > 0 {
			v.add(field.Invalid(p.Child("requests").Key(string(res)), req.String(), "must not exceed the limit of "+lim.String()))
		}
		// Extended resources cannot be overcommitted: requests and limits are equal.
		if !ok && strings.Contains(string(res), "/") {
			v.add(field.Required(p.Child("limits").Key(string(res)), "an extended resource needs a limit that equals its request"))
		}
	}
}

// resizePolicies checks what happens to a container when its resources
// are resized in place (KEP-1287); other resources cannot be.
func (v *podValidator) resizePolicies(list []v1.ContainerResizePolicy, p *field.Path) {
	seen := map[v1.ResourceName]bool{}
	for i, r := range list {
		np := p.Index(i).Child("resourceName")
		switch {
		case r.ResourceName != v1.ResourceCPU && r.ResourceName != v1.ResourceMemory:
			v.add(field.NotSupported(np, r.ResourceName, []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}))
		case seen[r.ResourceName]:
			v.add(field.Duplicate(np, r.ResourceName))
		}
		seen[r.ResourceName] = true
	}
}

// quantities checks names and signs. How a quantity
// parses was decided when the pod was decoded.
func (v *podValidator) quantities(list v1.ResourceList, p *field.Path) {
	for _, res := range slices.Sorted(maps.Keys(list)) {
		v.says(p, res, validation.IsQualifiedName(string(res)))
		if q := list[res]; q.Sign() < 0 {
			v.add(field.Invalid(p.Key(string(res)), q.String(), "must be 0 or more"))
		}
	}
}

// probe checks one of a container's probes; 0
// stands for a default that is filled in before.
func (v *podValidator) probe(pr *v1.Probe, p *field.Path, name string) {
	if pr == nil {
		return
	}
	p = p.Child(name)
	for _, f := range []struct {
		name string
		n    int32
	}{
		{"initialDelaySeconds", pr.InitialDelaySeconds}, {"timeoutSeconds", pr.TimeoutSeconds}, {"periodSeconds", pr.PeriodSeconds},
		{"successThreshold", pr.SuccessThreshold}, {"failureThreshold", pr.FailureThreshold},
	} {
		if f.n < 0 {
			v.add(field.Invalid(p.Child(f.name), f.n, "must be 0 or more"))
		}
	}
	// Only readiness comes and goes. The others decide with one success.
	if name != "readinessProbe" && pr.SuccessThreshold != 1 {
		v.add(field.Invalid(p.Child("successThreshold"), pr.SuccessThreshold, "must be 1"))
	}
	// With 0 seconds a failed probe would be a kill without a chance to end.
	if g := pr.TerminationGracePeriodSeconds; g != nil && *g < 1 {
		v.add(field.Invalid(p.Child("terminationGracePeriodSeconds"), *g, "must be 1 or more"))
	}
	if pr.GRPC != nil {
		v.says(p.Child("grpc", "port"), pr.GRPC.Port, validation.IsValidPortNum(int(pr.GRPC.Port)))
	}
	v.handler(p, pr.Exec, pr.HTTPGet, pr.TCPSocket, pr.GRPC, false)
}

// hook checks one of a container's lifecycle handlers.
func (v *podValidator) hook(h *v1.LifecycleHandler, p *field.Path) {
	if h == nil {
		return
	}
	v.handler(p, h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep != nil)
	// The kill at the end of the grace period would cut a longer sleep short.
	if grace := v.pod.Spec.TerminationGracePeriodSeconds; h.Sleep != nil && grace != nil && (h.Sleep.Seconds < 0 || h.Sleep.Seconds > *grace) {
		v.add(field.Invalid(p.Child("sleep", "seconds"), h.Sleep.Seconds, fmt.Sprintf("must be 0 to terminationGracePeriodSeconds (%d)", *grace)))
	}
}

// handler checks that exactly one way is given, and its fields.
func (v *podValidator) handler(p *field.Path, exec *v1.ExecAction, get *v1.HTTPGetAction, tcp *v1.TCPSocketAction, grpc *v1.GRPCAction, sleep bool) {
	n := 0
	for _, set := range []bool{exec != nil, get != nil, tcp != nil, grpc != nil, sleep} {
		if set {
			n++
		}
	}
	if n != 1 {
		v.add(field.Required(p, "exactly one handler"))
	}
	if exec != nil && len(exec.Command) == 0 {
		v.add(field.Required(p.Child("exec", "command"), ""))
	}
	// A name stands for one of the container's ports.
	port := func(p *field.Path, n intstr.IntOrString) {
		if n.Type == intstr.String {
			v.says(p, n.StrVal, validation.IsValidPortName(n.StrVal))
		} else {
			v.says(p, n.IntVal, validation.IsValidPortNum(n.IntValue()))
		}
	}
	if get != nil {
		port(p.Child("httpGet", "port"), get.Port)
		for i, h := range get.HTTPHeaders {
			v.says(p.Child("httpGet", "httpHeaders").Index(i).Child("name"), h.Name, validation.IsHTTPHeaderName(h.Name))
		}
	}
	if tcp != nil {
		port(p.Child("tcpSocket", "port"), tcp.Port)
	}
}

// podSecurity checks settings that only the pod as a whole has.
func (v *podValidator) podSecurity(sc *v1.PodSecurityContext, p *field.Path) {
	v.sysctls(sc.Sysctls, p.Child("sysctls"))
	// With hostPID a pod is in the host's PID namespace, and has none of its own to share.
	if share := v.pod.Spec.ShareProcessNamespace; share != nil && *share && v.pod.Spec.HostPID {
		v.add(field.Invalid(field.NewPath("spec", "shareProcessNamespace"), true, "must not stand beside hostPID"))
	}
}

// security checks a container's settings against each other.
func (v *podValidator) security(sc *v1.SecurityContext, p *field.Path) {
	// A privileged container has every privilege
	// to begin with: the setting could not hold.
	if esc := sc.AllowPrivilegeEscalation; esc != nil && !*esc && sc.Privileged != nil && *sc.Privileged {
		v.add(field.Invalid(p, "", "a privileged container cannot have allowPrivilegeEscalation: false"))
	}
}
