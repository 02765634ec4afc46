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
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/internal/podcheck"
	"github.com/nodewright/nodewright/podmeta"
)

// validatePod does the work of [Validate].
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
	v.annotations(p.Annotations, meta.Child("annotations"))
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
	claims  map[string]bool // names in spec.resourceClaims
	// ports has protocol, address and host port of all containers checked so far: two containers
	// cannot have the same host port.
	ports map[string]bool // host ports
}

// add adds a mistake, unless there are maxMistakes already: a pod with a million mistakes must
// not cost more than a pod with a hundred.
func (v *podValidator) add(e *field.Error) {
	if len(v.errs) < maxMistakes {
		v.errs = append(v.errs, e)
	}
}

// all adds the mistakes in errs.
func (v *podValidator) all(errs field.ErrorList) {
	for _, e := range errs {
		v.add(e)
	}
}

// annotations checks the keys of annotations. Like the API server, it allows capitals in them.
func (v *podValidator) annotations(m map[string]string, p *field.Path) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v.says(p, k, validation.IsQualifiedName(strings.ToLower(k)))
	}
}

// says adds a mistake for each message that a function of package validation returned about the
// value.
func (v *podValidator) says(p *field.Path, value any, msgs []string) {
	for _, m := range msgs {
		v.add(field.Invalid(p, value, m))
	}
}

// notNegative checks that a field is nil or at least 0.
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
	if s.HostNetwork && s.HostnameOverride != nil {
		v.add(field.Forbidden(p.Child("hostnameOverride"), "must not be set together with hostNetwork"))
	}
	for _, f := range []struct {
		name  string
		value *string
	}{{"hostnameOverride", s.HostnameOverride}, {"runtimeClassName", s.RuntimeClassName}} {
		if f.value != nil {
			v.says(p.Child(f.name), *f.value, validation.IsDNS1123Subdomain(*f.value))
		}
	}
	gates := map[string]bool{}
	for i, g := range s.SchedulingGates {
		gp := p.Child("schedulingGates").Index(i)
		v.says(gp.Child("name"), g.Name, validation.IsQualifiedName(g.Name))
		if gates[g.Name] {
			v.add(field.Duplicate(gp, g.Name))
		}
		gates[g.Name] = true
	}
	if s.Subdomain != "" {
		v.says(p.Child("subdomain"), s.Subdomain, validation.IsDNS1123Label(s.Subdomain))
	}
	for i, a := range s.HostAliases {
		if net.ParseIP(a.IP) == nil {
			v.add(field.Invalid(p.Child("hostAliases").Index(i).Child("ip"), a.IP, "must be an IP address"))
		}
	}
	v.quantities(s.Overhead, false, p.Child("overhead"))
	v.userNamespace(s, p)
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
	v.podResources(s, p.Child("resources"))
	for i := range s.EphemeralContainers {
		v.ephemeral(s, &s.EphemeralContainers[i], p.Child("ephemeralContainers").Index(i))
	}
	if sc := s.SecurityContext; sc != nil {
		v.podSecurity(sc, p.Child("securityContext"))
	}
}

// userNamespace checks that a pod with hostUsers: false shares no namespace with the host that
// it cannot (KEP-127).
func (v *podValidator) userNamespace(s *v1.PodSpec, p *field.Path) {
	if s.HostUsers == nil || *s.HostUsers {
		return
	}
	const never = "when hostUsers is false"
	for name, set := range map[string]bool{"hostNetwork": s.HostNetwork, "hostPID": s.HostPID, "hostIPC": s.HostIPC} {
		if set {
			v.add(field.Forbidden(p.Child(name), never))
		}
	}
	for i := range s.Containers {
		if len(s.Containers[i].VolumeDevices) > 0 {
			v.add(field.Forbidden(p.Child("containers").Index(i).Child("volumeDevices"), never))
		}
	}
	for i := range s.InitContainers {
		if len(s.InitContainers[i].VolumeDevices) > 0 {
			v.add(field.Forbidden(p.Child("initContainers").Index(i).Child("volumeDevices"), never))
		}
	}
}

// references refuses references that only an API server can resolve.
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
		v.sources(vol.Name, &vol.VolumeSource, vp)
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
	n := 0
	for _, set := range reflect.ValueOf(*src).Fields() {
		if !set.IsNil() {
			n++
		}
	}
	if n > 1 {
		v.add(field.Forbidden(p, fmt.Sprintf("has %d sources; want one", n)))
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
// ephemeral checks a container like a regular one, and that it has no field that ephemeral containers
// must not have.
func (v *podValidator) ephemeral(s *v1.PodSpec, c *v1.EphemeralContainer, p *field.Path) {
	v.container((*v1.Container)(&c.EphemeralContainerCommon), p)
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"lifecycle", c.Lifecycle != nil}, {"livenessProbe", c.LivenessProbe != nil}, {"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil}, {"ports", c.Ports != nil}, {"resizePolicy", c.ResizePolicy != nil},
		{"restartPolicy", c.RestartPolicy != nil}, {"restartPolicyRules", c.RestartPolicyRules != nil},
		{"resources", c.Resources.Requests != nil || c.Resources.Limits != nil || c.Resources.Claims != nil},
	} {
		if f.set {
			v.add(field.Forbidden(p.Child(f.name), "must not be set for an ephemeral container"))
		}
	}
	for i, m := range c.VolumeMounts {
		if m.SubPath != "" || m.SubPathExpr != "" {
			v.add(field.Forbidden(p.Child("volumeMounts").Index(i), "must not have subPath or subPathExpr in an ephemeral container"))
		}
	}
	target := func(of v1.Container) bool { return of.Name == c.TargetContainerName }
	if c.TargetContainerName != "" && !slices.ContainsFunc(s.Containers, target) && !slices.ContainsFunc(s.InitContainers, target) {
		v.add(field.NotFound(p.Child("targetContainerName"), c.TargetContainerName))
	}
}

func (v *podValidator) container(c *v1.Container, p *field.Path) {
	// The API server refuses blanks around a name as well, rather than trim them.
	if c.Image == "" {
		v.add(field.Required(p.Child("image"), ""))
	} else if strings.TrimSpace(c.Image) != c.Image {
		v.add(field.Invalid(p.Child("image"), c.Image, "must not have blanks at its ends"))
	}
	v.restartRules(c, p)
	v.portList(c.Ports, p.Child("ports"))
	for i := range c.Env {
		v.env(&c.Env[i], p.Child("env").Index(i))
	}
	for i := range c.EnvFrom {
		src, ep := &c.EnvFrom[i], p.Child("envFrom").Index(i)
		if src.Prefix != "" {
			v.says(ep.Child("prefix"), src.Prefix, validation.IsRelaxedEnvVarName(src.Prefix))
		}
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
	v.resources(c.Resources, false, p.Child("resources"))
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

// restartRules checks the restart policy rules of a container (KEP-5307).
func (v *podValidator) restartRules(c *v1.Container, p *field.Path) {
	if len(c.RestartPolicyRules) > 0 && c.RestartPolicy == nil {
		v.add(field.Required(p.Child("restartPolicy"), "with restartPolicyRules"))
	}
	for i := range c.RestartPolicyRules {
		rp := p.Child("restartPolicyRules").Index(i).Child("exitCodes")
		codes := c.RestartPolicyRules[i].ExitCodes
		if codes == nil {
			v.add(field.Required(rp, ""))
			continue
		}
		if n := len(codes.Values); n > maxExitCodes {
			v.add(field.TooMany(rp.Child("values"), n, maxExitCodes))
		}
	}
}

// maxExitCodes is how many exit codes a restart rule may list (the API's documentation of values).
const maxExitCodes = 255

// portList checks the ports of one container. Its host ports must differ from the host ports of the
// containers before it.
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

// env checks a variable: its name, and that it has a value or exactly one source.
func (v *podValidator) env(e *v1.EnvVar, p *field.Path) {
	// An entry of an environment is NAME=VALUE, and ends with a NUL byte (POSIX). In a name,
	// Kubernetes allows the printable characters of ASCII, except =.
	if e.Name == "" {
		v.add(field.Required(p.Child("name"), ""))
	} else {
		v.says(p.Child("name"), e.Name, validation.IsRelaxedEnvVarName(e.Name))
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
		v.add(field.Invalid(p.Child("valueFrom"), "", "must not be set together with value"))
	}
}

// keyRef checks a reference to a key of an object.
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
			v.add(field.Invalid(mp.Child("subPathExpr"), m.SubPathExpr, "must not be set together with subPath"))
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
	names := map[string]bool{}
	for i := range c.VolumeDevices {
		d, dp := &c.VolumeDevices[i], p.Child("volumeDevices").Index(i)
		switch of := v.sourceOf(d.Name); {
		case of == nil:
			v.add(field.NotFound(dp.Child("name"), d.Name))
		case of.PersistentVolumeClaim == nil && of.Ephemeral == nil:
			v.add(field.Invalid(dp.Child("name"), d.Name, "must be a persistentVolumeClaim or an ephemeral volume"))
		}
		if names[d.Name] || slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == d.Name }) {
			v.add(field.Invalid(dp.Child("name"), d.Name, "must be unique"))
		}
		names[d.Name] = true
		switch {
		case d.DevicePath == "":
			v.add(field.Required(dp.Child("devicePath"), ""))
		case paths[d.DevicePath]:
			v.add(field.Invalid(dp.Child("devicePath"), d.DevicePath, "must be unique"))
		case strings.Contains("/"+d.DevicePath+"/", "/../"):
			v.add(field.Invalid(dp.Child("devicePath"), d.DevicePath, "must not contain '..'"))
		}
		paths[d.DevicePath] = true
	}
}

// sourceOf returns the source of a volume by name, or nil if the pod has no such volume.
func (v *podValidator) sourceOf(name string) *v1.VolumeSource {
	for i := range v.pod.Spec.Volumes {
		if vol := &v.pod.Spec.Volumes[i]; vol.Name == name {
			return &vol.VolumeSource
		}
	}
	return nil
}

// resources checks requests against limits. ofPod is true for the resources of the whole pod,
// which cannot include devices.
func (v *podValidator) resources(r v1.ResourceRequirements, ofPod bool, p *field.Path) {
	v.claimsOf(r.Claims, p.Child("claims"))
	v.quantities(r.Limits, ofPod, p.Child("limits"))
	v.quantities(r.Requests, ofPod, p.Child("requests"))
	huge, other := false, false
	for _, list := range []v1.ResourceList{r.Requests, r.Limits} {
		for res := range list {
			huge = huge || isHuge(res)
			other = other || res == v1.ResourceCPU || res == v1.ResourceMemory
		}
	}
	if huge && !other {
		v.add(field.Forbidden(p, "huge pages need a request or limit of cpu or memory too"))
	}
	for _, res := range slices.Sorted(maps.Keys(r.Requests)) {
		req, rp := r.Requests[res], p.Child("requests").Key(string(res))
		lim, ok := r.Limits[res]
		// Extended resources and huge pages cannot be overcommitted: requests and limits are equal.
		whole := isHuge(res) || isExtended(res)
		switch {
		case whole && !ok:
			v.add(field.Required(p.Child("limits").Key(string(res)), "needs a limit that equals its request"))
		case whole && req.Cmp(lim) != 0:
			v.add(field.Invalid(rp, req.String(), "must equal the limit of "+lim.String()))
		case ok && req.Cmp(lim) > 0:
			v.add(field.Invalid(rp, req.String(), "must not exceed the limit of "+lim.String()))
		}
	}
}

func isHuge(res v1.ResourceName) bool {
	return strings.HasPrefix(string(res), v1.ResourceHugePagesPrefix)
}

// isExtended reports whether a resource is an extended resource, such as example.com/gpu.
func isExtended(res v1.ResourceName) bool {
	return strings.Contains(string(res), "/") && !strings.Contains(string(res), v1.ResourceDefaultNamespacePrefix)
}

// podResources checks the pod-level resources against the sums of the containers.
func (v *podValidator) podResources(s *v1.PodSpec, p *field.Path) {
	r := s.Resources
	if r == nil {
		return
	}
	if r.Claims != nil {
		v.add(field.Forbidden(p.Child("claims"), "must be set in containers, not for the whole pod"))
	}
	v.resources(*r, true, p)
	containers := &v1.Pod{Spec: *s}
	containers.Spec.Resources, containers.Spec.Overhead = nil, nil
	sum := podmeta.Sum(containers, podmeta.RequestsOf)
	for _, res := range slices.Sorted(maps.Keys(r.Requests)) {
		if req, least := r.Requests[res], sum[res]; req.Cmp(least) < 0 {
			v.add(field.Invalid(p.Child("requests").Key(string(res)), req.String(), "must be at least what the containers request, "+least.String()))
		}
	}
	for _, list := range []struct {
		name string
		of   []v1.Container
	}{{"initContainers", s.InitContainers}, {"containers", s.Containers}} {
		for i := range list.of {
			for _, res := range slices.Sorted(maps.Keys(list.of[i].Resources.Limits)) {
				lim := list.of[i].Resources.Limits[res]
				if most, ok := r.Limits[res]; ok && lim.Cmp(most) > 0 {
					at := field.NewPath("spec", list.name).Index(i).Child("resources", "limits").Key(string(res))
					v.add(field.Invalid(at, lim.String(), "must not exceed the limit of the pod, "+most.String()))
				}
			}
		}
	}
}

// resizePolicies checks the resize policies of a container (KEP-1287). Only CPU and memory may have
// one.
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

// quantities checks names and amounts of resources.
func (v *podValidator) quantities(list v1.ResourceList, ofPod bool, p *field.Path) {
	for _, res := range slices.Sorted(maps.Keys(list)) {
		v.says(p, res, validation.IsQualifiedName(string(res)))
		rp, q := p.Key(string(res)), list[res]
		switch {
		case isHuge(res):
			if size, err := resource.ParseQuantity(strings.TrimPrefix(string(res), v1.ResourceHugePagesPrefix)); err != nil || size.Value() <= 0 || q.Value()%size.Value() != 0 {
				v.add(field.Invalid(rp, q.String(), "must be a multiple of the size of a page in its name"))
			}
		case res == v1.ResourceCPU || res == v1.ResourceMemory:
		case res == v1.ResourceEphemeralStorage && !ofPod:
		case !strings.Contains(string(res), "/") || ofPod:
			v.add(field.Invalid(rp, res, "must be cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME; of a pod as a whole cpu, memory or hugepages-SIZE"))
		case isExtended(res) && strings.HasPrefix(string(res), v1.DefaultResourceRequestsPrefix):
			v.add(field.Invalid(rp, res, "must not begin with "+v1.DefaultResourceRequestsPrefix))
		case isExtended(res) && q.MilliValue()%1000 != 0:
			v.add(field.Invalid(rp, q.String(), "must be an integer"))
		}
		if q.Sign() < 0 {
			v.add(field.Invalid(rp, q.String(), "must be 0 or more"))
		}
	}
}

// probe checks one of a container's probes after its defaults were set.
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
	// Readiness kills nothing.
	if pr.TerminationGracePeriodSeconds != nil && name == "readinessProbe" {
		v.add(field.Invalid(p.Child("terminationGracePeriodSeconds"), *pr.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
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

// handler checks that a probe or hook has exactly one action, and checks the fields of the
// action.
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

// podSecurity checks the security context of the pod.
func (v *podValidator) podSecurity(sc *v1.PodSecurityContext, p *field.Path) {
	v.sysctls(sc.Sysctls, p.Child("sysctls"))
	if sc.WindowsOptions != nil {
		v.add(field.Forbidden(p.Child("windowsOptions"), noWindows))
	}
	// With hostPID a pod is in the host's PID namespace, and has none of its own to share.
	if share := v.pod.Spec.ShareProcessNamespace; share != nil && *share && v.pod.Spec.HostPID {
		v.add(field.Invalid(field.NewPath("spec", "shareProcessNamespace"), true, "must not be set together with hostPID"))
	}
}

const noWindows = "the node runs Linux"

// security checks a container's settings against each other.
func (v *podValidator) security(sc *v1.SecurityContext, p *field.Path) {
	if sc.WindowsOptions != nil {
		v.add(field.Forbidden(p.Child("windowsOptions"), noWindows))
	}
	// A privileged container has every privilege
	// to begin with: the setting could not hold.
	if esc := sc.AllowPrivilegeEscalation; esc != nil && !*esc && sc.Privileged != nil && *sc.Privileged {
		v.add(field.Invalid(p, "", "a privileged container cannot have allowPrivilegeEscalation: false"))
	}
}
