package resources

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podspec"
)

// Compile implements part.Compiler. It adds the CDI devices of a pod's claims to the containers,
// each device once. It returns an error if a claim is not prepared.
func (p *Claims) Compile(pod *v1.Pod, in *podspec.Input) error {
	if !hasClaims(pod) {
		return nil
	}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		ids, err := p.cfg.Manager.Attachment(pod, c.Name)
		if err != nil {
			return fmt.Errorf("container %s: %w", c.Name, err)
		}
		if len(ids) == 0 {
			continue
		}
		if in.Attached == nil {
			in.Attached = map[string]podspec.Attachment{}
		}
		got := in.Attached[c.Name]
		got.CDI = slices.Clone(got.CDI) // it may be shared
		for _, id := range ids {
			if !slices.Contains(got.CDI, id) {
				got.CDI = append(got.CDI, id)
			}
		}
		in.Attached[c.Name] = got
	}
	return nil
}

// statusPrefix begins the names of claims' devices in the status of a container
// (v1.ResourceStatus).
const statusPrefix = "claim:"

// Report implements part.Reporter: it adds the health of the claims' devices to the statuses of
// regular containers and sidecars.
func (p *Claims) Report(pod *v1.Pod, st *v1.PodStatus) {
	if !hasClaims(pod) {
		return
	}
	sidecar := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		sidecar[pod.Spec.InitContainers[i].Name] = podmeta.IsSidecar(&pod.Spec.InitContainers[i])
	}
	show := func(list []v1.ContainerStatus, shows func(name string) bool) {
		for i := range list {
			if c := &list[i]; shows(c.Name) {
				others := slices.DeleteFunc(slices.Clone(c.AllocatedResourcesStatus), func(s v1.ResourceStatus) bool {
					return strings.HasPrefix(string(s.Name), statusPrefix)
				})
				c.AllocatedResourcesStatus = append(others, p.cfg.Manager.Health(pod.UID, c.Name)...)
			}
		}
	}
	show(st.ContainerStatuses, func(string) bool { return true })
	show(st.InitContainerStatuses, func(name string) bool { return sidecar[name] })
}

// Held returns the prepared claims of pods, for the podresources API.
func (p *Claims) Held() devicemgr.PreparedClaims { return held{p.cfg.Manager} }

type held struct{ m ClaimManager }

// Dynamic implements devicemgr.PreparedClaims.
func (h held) Dynamic(pod *v1.Pod, container string) []*podresourcesapi.DynamicResource {
	var out []*podresourcesapi.DynamicResource
	for _, held := range h.m.Holdings(pod.UID, container) {
		r := &podresourcesapi.DynamicResource{ClaimName: held.Claim, ClaimNamespace: held.Namespace}
		for _, d := range held.Devices {
			c := &podresourcesapi.ClaimResource{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Name}
			for _, id := range d.CDI {
				c.CdiDevices = append(c.CdiDevices, &podresourcesapi.CDIDevice{Name: id})
			}
			r.ClaimResources = append(r.ClaimResources, c)
		}
		out = append(out, r)
	}
	return out
}
