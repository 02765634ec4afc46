package podmgr

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podmeta"
)

// setDefaults sets the defaults that an API server sets, since manifests do not pass through
// one. The values are those of the v1 API documentation.
func setDefaults(p *v1.Pod) {
	s := &p.Spec
	setIf(&s.RestartPolicy, v1.RestartPolicyAlways)
	setIf(&s.DNSPolicy, v1.DNSClusterFirst)
	setIf(&s.SchedulerName, v1.DefaultSchedulerName)
	setPtr(&s.TerminationGracePeriodSeconds, int64(v1.DefaultTerminationGracePeriodSeconds))
	setPtr(&s.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	setPtr(&s.SecurityContext, v1.PodSecurityContext{})
	if n, ok := podmeta.PriorityOf(s.PriorityClassName); ok { // as admission has it
		setPtr(&s.Priority, n)
	}
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i])
	}
	for i := range s.InitContainers {
		defaultContainer(&s.InitContainers[i], s.HostNetwork)
	}
	for i := range s.Containers {
		defaultContainer(&s.Containers[i], s.HostNetwork)
	}
	for i := range s.EphemeralContainers {
		c := (*v1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon)
		defaultContainer(c, s.HostNetwork)
	}
}

// setIf sets a field to def if the field has its zero value.
func setIf[T comparable](p *T, def T) {
	var zero T
	if *p == zero {
		*p = def
	}
}

// setPtr sets a nil field to a copy of def, which no other pod shares.
func setPtr[T any](p **T, def T) {
	if *p == nil {
		*p = &def
	}
}

// defaultVolume turns a volume without a source into an emptyDir and sets the default file mode
// 0644, as the API server does.
func defaultVolume(v *v1.Volume) {
	if v.VolumeSource == (v1.VolumeSource{}) {
		v.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	if h := v.HostPath; h != nil {
		setPtr(&h.Type, v1.HostPathUnset)
	}
	if s := v.Secret; s != nil {
		setPtr(&s.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	}
	if c := v.ConfigMap; c != nil {
		setPtr(&c.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	}
	if p := v.Projected; p != nil {
		setPtr(&p.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
		// A projected service account token has a default as
		// well, but no pod that comes here may have one.
		for i := range p.Sources {
			defaultDownward(p.Sources[i].DownwardAPI)
		}
	}
	if d := v.DownwardAPI; d != nil {
		setPtr(&d.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		for i := range d.Items {
			defaultFieldRef(d.Items[i].FieldRef)
		}
	}
	if i := v.Image; i != nil {
		setIf(&i.PullPolicy, pullPolicy(i.Reference))
	}
}

// defaultDownward sets the defaults of the downwardAPI items of a projected volume.
func defaultDownward(d *v1.DownwardAPIProjection) {
	if d == nil {
		return
	}
	for i := range d.Items {
		defaultFieldRef(d.Items[i].FieldRef)
	}
}

// defaultFieldRef sets the default apiVersion, v1.
func defaultFieldRef(f *v1.ObjectFieldSelector) {
	if f != nil {
		setIf(&f.APIVersion, "v1")
	}
}

// pullPolicy returns the default pull policy: Always for the tag latest or no tag, otherwise
// IfNotPresent.
func pullPolicy(image string) v1.PullPolicy {
	// A digest pins the content, whatever tag is before
	// it: no later pull could bring another image.
	if strings.Contains(image, "@") {
		return v1.PullIfNotPresent
	}
	// A colon before the last slash begins the port of a registry, not a tag.
	name := image[strings.LastIndexByte(image, '/')+1:]
	if _, tag, ok := strings.Cut(name, ":"); ok && tag != "latest" {
		return v1.PullIfNotPresent
	}
	return v1.PullAlways
}

// defaultContainer sets the defaults of a container or init container.
func defaultContainer(c *v1.Container, hostNetwork bool) {
	setIf(&c.ImagePullPolicy, pullPolicy(c.Image))
	setIf(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	setIf(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		setIf(&c.Ports[i].Protocol, v1.ProtocolTCP)
		// In the host's network a port is one of the
		// host, whether the manifest says so or not.
		if hostNetwork {
			setIf(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		if f := c.Env[i].ValueFrom; f != nil {
			defaultFieldRef(f.FieldRef)
			// Zero stands for a divisor of 1; the API server writes it out like this.
			if f.ResourceFieldRef != nil && f.ResourceFieldRef.Divisor.IsZero() {
				f.ResourceFieldRef.Divisor = resource.MustParse("0")
			}
		}
	}
	// Before validation, which compares requests with
	// limits, and before a node adds up requests.
	c.Resources.Requests = podmeta.FillRequests(c.Resources.Requests, c.Resources.Limits)
	for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTP(h.HTTPGet)
			}
		}
	}
}

// defaultProbe sets the default seconds and thresholds of a probe.
func defaultProbe(p *v1.Probe) {
	if p == nil {
		return
	}
	setIf(&p.TimeoutSeconds, 1)
	setIf(&p.PeriodSeconds, 10)
	setIf(&p.SuccessThreshold, 1)
	setIf(&p.FailureThreshold, 3)
	defaultHTTP(p.HTTPGet)
	if p.GRPC != nil {
		// The empty service asks for the health of the server
		// as a whole (gRPC health checking protocol).
		setPtr(&p.GRPC.Service, "")
	}
}

// defaultHTTP leaves the host empty, which means the address of the pod.
func defaultHTTP(h *v1.HTTPGetAction) {
	if h != nil {
		setIf(&h.Path, "/")
		setIf(&h.Scheme, v1.URISchemeHTTP)
	}
}
